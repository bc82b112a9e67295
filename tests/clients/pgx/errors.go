package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

var errorCases = []testCase{
	{"sqlstates", sqlstates},
	{"failed_transaction", failedTransaction},
	{"context_cancels_a_statement", contextCancels},
}

func sqlstates(ctx context.Context, conn *pgx.Conn) (any, error) {
	if _, err := conn.Exec(ctx, "CREATE TABLE states (id int PRIMARY KEY, n int NOT NULL)"); err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "INSERT INTO states VALUES (1, 1)"); err != nil {
		return nil, err
	}
	found := []string{}
	for _, sql := range []string{
		"SELEC 1", "SELECT * FROM missing", "SELECT missing FROM states",
		"INSERT INTO states VALUES (1, 1)", "INSERT INTO states VALUES (2, NULL)",
	} {
		_, err := conn.Exec(ctx, sql)
		found = append(found, sqlstate(err))
	}
	var one int
	err := conn.QueryRow(ctx, "SELECT 1").Scan(&one)
	return []any{found, one}, err
}

func failedTransaction(ctx context.Context, conn *pgx.Conn) (any, error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	_, first := tx.Exec(ctx, "SELECT * FROM missing")
	_, second := tx.Exec(ctx, "SELECT 1")
	commit := tx.Commit(ctx)
	return []any{sqlstate(first), sqlstate(second), commit.Error(), string(conn.PgConn().TxStatus())}, nil
}

// pgx closes the connection when a context ends; the server has to notice and go on serving others.
func contextCancels(ctx context.Context, conn *pgx.Conn) (any, error) {
	short, stop := context.WithTimeout(ctx, 200*time.Millisecond)
	defer stop()
	_, err := conn.Exec(short, "SELECT pg_sleep(60)")
	again, connectErr := pgx.Connect(ctx, "")
	if connectErr != nil {
		return nil, connectErr
	}
	defer again.Close(ctx)
	var one int
	scanErr := again.QueryRow(ctx, "SELECT 1").Scan(&one)
	return []any{err != nil, one}, scanErr
}
