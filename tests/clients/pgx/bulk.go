package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

var bulkCases = []testCase{
	{"batch", batch},
	{"batch_with_an_error", batchWithAnError},
	{"copy_from_binary", copyFromBinary},
	{"copy_in_text", copyInText},
	{"copy_out_csv", copyOutCSV},
	{"rows_read_halfway", rowsReadHalfway},
	{"one_connection_many_statements", oneConnectionManyStatements},
}

func batch(ctx context.Context, conn *pgx.Conn) (any, error) {
	if _, err := conn.Exec(ctx, "CREATE TABLE batch (id int PRIMARY KEY, n int)"); err != nil {
		return nil, err
	}
	work := &pgx.Batch{}
	for i := 0; i < 100; i++ {
		work.Queue("INSERT INTO batch VALUES ($1, $2)", i, i*i)
	}
	work.Queue("SELECT count(*), sum(n) FROM batch")
	results := conn.SendBatch(ctx, work)
	defer results.Close()
	for i := 0; i < 100; i++ {
		if _, err := results.Exec(); err != nil {
			return nil, err
		}
	}
	var count, sum int64
	err := results.QueryRow().Scan(&count, &sum)
	return []int64{count, sum}, err
}

func batchWithAnError(ctx context.Context, conn *pgx.Conn) (any, error) {
	if _, err := conn.Exec(ctx, "CREATE TABLE batchbad (id int PRIMARY KEY)"); err != nil {
		return nil, err
	}
	work := &pgx.Batch{}
	for _, id := range []int{1, 2, 1, 3} {
		work.Queue("INSERT INTO batchbad VALUES ($1)", id)
	}
	failed := sqlstate(conn.SendBatch(ctx, work).Close())
	var count int64
	err := conn.QueryRow(ctx, "SELECT count(*) FROM batchbad").Scan(&count)
	return []any{failed, count}, err
}

func copyFromBinary(ctx context.Context, conn *pgx.Conn) (any, error) {
	if _, err := conn.Exec(ctx, "CREATE TABLE copybin (id int, t text, f double precision, b bool)"); err != nil {
		return nil, err
	}
	source := pgx.CopyFromSlice(1000, func(i int) ([]any, error) {
		return []any{int32(i), fmt.Sprintf("row %d", i), float64(i) / 4, i%2 == 0}, nil
	})
	copied, err := conn.CopyFrom(ctx, pgx.Identifier{"copybin"}, []string{"id", "t", "f", "b"}, source)
	if err != nil {
		return nil, err
	}
	var count, sum int64
	err = conn.QueryRow(ctx, "SELECT count(*), sum(id) FROM copybin WHERE b").Scan(&count, &sum)
	return []int64{copied, count, sum}, err
}

func copyInText(ctx context.Context, conn *pgx.Conn) (any, error) {
	if _, err := conn.Exec(ctx, "CREATE TABLE copytext (id int, t text)"); err != nil {
		return nil, err
	}
	tag, err := conn.PgConn().CopyFrom(ctx, strings.NewReader("1\tone\n2\t\\N\n3\ta\\tb\n"), "COPY copytext FROM STDIN")
	if err != nil {
		return nil, err
	}
	var count, filled int64
	err = conn.QueryRow(ctx, "SELECT count(*), count(t) FROM copytext").Scan(&count, &filled)
	return []any{tag.String(), count, filled}, err
}

func copyOutCSV(ctx context.Context, conn *pgx.Conn) (any, error) {
	if _, err := conn.Exec(ctx, "CREATE TABLE copyout (id int, t text)"); err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "INSERT INTO copyout VALUES (1, 'a,b'), (2, NULL)"); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	tag, err := conn.PgConn().CopyTo(ctx, &out, "COPY (SELECT * FROM copyout ORDER BY id) TO STDOUT WITH (FORMAT csv)")
	return []string{tag.String(), out.String()}, err
}

// A program that stops reading a result leaves the connection usable.
func rowsReadHalfway(ctx context.Context, conn *pgx.Conn) (any, error) {
	rows, err := conn.Query(ctx, "SELECT g FROM generate_series(1, 10000) g")
	if err != nil {
		return nil, err
	}
	rows.Next()
	rows.Close()
	var one int
	err = conn.QueryRow(ctx, "SELECT 1").Scan(&one)
	return one, err
}

// More distinct statements than pgx's cache of 512 holds: the old ones are closed, the new ones prepared.
func oneConnectionManyStatements(ctx context.Context, conn *pgx.Conn) (any, error) {
	total := 0
	for i := 0; i < 600; i++ {
		var n int
		if err := conn.QueryRow(ctx, fmt.Sprintf("SELECT %d + $1::int AS c%d", i, i), 1).Scan(&n); err != nil {
			return nil, err
		}
		total += n
	}
	return total, nil
}
