package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

var sessionAttributes = []string{"any", "read-write", "primary", "read-only", "standby", "prefer-standby"}

// Prints for each target_session_attrs which of the two hosts pgx ends at, counted from 1.
func hosts(ports []string) {
	for _, attributes := range sessionAttributes {
		found, err := endsAt(ports, attributes)
		text := fmt.Sprint(found)
		if err != nil {
			text = "! " + err.Error()
		}
		fmt.Printf("%s\t%s\n", attributes, strings.ReplaceAll(text, "\n", "\\n"))
	}
}

func endsAt(ports []string, attributes string) (int, error) {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	host := strings.TrimSuffix(strings.Repeat("127.0.0.1,", len(ports)), ",")
	config := fmt.Sprintf("host=%s port=%s user=holdfast dbname=holdfast sslmode=disable target_session_attrs=%s",
		host, strings.Join(ports, ","), attributes)
	conn, err := pgx.Connect(ctx, config)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SELECT 1"); err != nil {
		return 0, err
	}
	_, port, _ := strings.Cut(conn.PgConn().Conn().RemoteAddr().String(), ":")
	return 1 + slices.Index(ports, port), nil
}
