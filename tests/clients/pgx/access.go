package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const who = "SELECT current_user::text || ' ' || (SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid())"

// Prints what pgx finds over TLS and with a password; the role `app` has the password `open sesame`.
func access(port, ca, foreignCA string) {
	verified := "sslmode=verify-full sslrootcert=" + ca
	for _, c := range []struct{ name, options, sql string }{
		{"verify_full", verified, who},
		{"channel_binding", verified + " channel_binding=require", who},
		{"wrong_password", verified + " password='open barley'", who},
		{"unknown_user", verified + " user='nobody at all'", who},
		{"no_tls", "sslmode=disable", who},
		{"foreign_ca", "sslmode=verify-full sslrootcert=" + foreignCA, who},
		{"granted", verified, "SELECT count(*)::text FROM notes"},
		{"denied", verified, "SELECT 'x' FROM secrets"},
	} {
		found, err := accessCase(fmt.Sprintf("host=localhost port=%s user=app password='open sesame' dbname=holdfast %s", port, c.options), c.sql)
		if err != nil {
			found = "error: " + err.Error()
		}
		found = strings.ReplaceAll(strings.ReplaceAll(found, "\n", "\\n"), ":"+port, ":PORT")
		fmt.Printf("%s\t%s\n", c.name, found)
	}
}

func accessCase(config, sql string) (found string, err error) {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	conn, err := pgx.Connect(ctx, config)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, sql).Scan(&found)
	return found, err
}
