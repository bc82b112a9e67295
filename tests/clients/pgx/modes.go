package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Cases that run in every query mode; `table` is a name of their own.
var modeCases = []struct {
	name string
	run  func(ctx context.Context, conn *pgx.Conn, table string) (any, error)
}{
	{"insert_and_select", insertAndSelect},
	{"types", types},
	{"nulls", nulls},
	{"aggregates", aggregates},
	{"update_counts", updateCounts},
	{"returning", returning},
	{"transaction", transaction},
}

func insertAndSelect(ctx context.Context, conn *pgx.Conn, table string) (any, error) {
	if _, err := conn.Exec(ctx, "CREATE TABLE "+table+" (id int PRIMARY KEY, name text NOT NULL)"); err != nil {
		return nil, err
	}
	for i, name := range []string{"zero", "it's", "ünïcode ☃"} {
		if _, err := conn.Exec(ctx, "INSERT INTO "+table+" VALUES ($1, $2)", i, name); err != nil {
			return nil, err
		}
	}
	rows, err := conn.Query(ctx, "SELECT name FROM "+table+" WHERE id >= $1 ORDER BY id", 1)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func types(ctx context.Context, conn *pgx.Conn, table string) (any, error) {
	_, err := conn.Exec(ctx, "CREATE TABLE "+table+
		" (a smallint, b int, c bigint, d text, e bool, f double precision, g bytea, h timestamp)")
	if err != nil {
		return nil, err
	}
	at := time.Date(2024, 2, 29, 23, 59, 59, 123456000, time.UTC)
	_, err = conn.Exec(ctx, "INSERT INTO "+table+" VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
		int16(-5), int32(2000000000), int64(-9000000000000000000), "text", true, 0.1, []byte{0, 1, 255}, at)
	if err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, "SELECT a, b, c, d, e, f, g, h FROM "+table)
	if err != nil {
		return nil, err
	}
	rows.Next()
	values, err := rows.Values()
	if err != nil {
		return nil, err
	}
	same := values[7].(time.Time).Equal(at)
	oids := []uint32{}
	for _, field := range rows.FieldDescriptions() {
		oids = append(oids, field.DataTypeOID)
	}
	rows.Close()
	return []any{values[:7], same, oids}, rows.Err()
}

func nulls(ctx context.Context, conn *pgx.Conn, table string) (any, error) {
	if _, err := conn.Exec(ctx, "CREATE TABLE "+table+" (a int, b text)"); err != nil {
		return nil, err
	}
	var number *int
	if _, err := conn.Exec(ctx, "INSERT INTO "+table+" VALUES ($1, $2)", number, nil); err != nil {
		return nil, err
	}
	var a *int
	var b *string
	err := conn.QueryRow(ctx, "SELECT a, b FROM "+table).Scan(&a, &b)
	return []bool{a == nil, b == nil}, err
}

func aggregates(ctx context.Context, conn *pgx.Conn, table string) (any, error) {
	if _, err := conn.Exec(ctx, "CREATE TABLE "+table+" (a int)"); err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "INSERT INTO "+table+" SELECT g FROM generate_series(1, 10) g"); err != nil {
		return nil, err
	}
	var count, sum int64
	var largest int32
	err := conn.QueryRow(ctx, "SELECT count(*), sum(a), max(a) FROM "+table+" WHERE a > $1", 3).Scan(&count, &sum, &largest)
	return []any{count, sum, largest}, err
}

func updateCounts(ctx context.Context, conn *pgx.Conn, table string) (any, error) {
	if _, err := conn.Exec(ctx, "CREATE TABLE "+table+" (a int, b int)"); err != nil {
		return nil, err
	}
	tag, err := conn.Exec(ctx, "INSERT INTO "+table+" VALUES (1, 1), (2, 2), (3, 3)")
	if err != nil {
		return nil, err
	}
	found := []any{tag.String()}
	tag, err = conn.Exec(ctx, "UPDATE "+table+" SET b = b + $1 WHERE a < $2", 10, 3)
	if err != nil {
		return nil, err
	}
	found = append(found, tag.String())
	tag, err = conn.Exec(ctx, "DELETE FROM "+table+" WHERE a = $1", 99)
	return append(found, tag.String()), err
}

func returning(ctx context.Context, conn *pgx.Conn, table string) (any, error) {
	if _, err := conn.Exec(ctx, "CREATE TABLE "+table+" (id serial PRIMARY KEY, v text)"); err != nil {
		return nil, err
	}
	ids := []int32{}
	for _, v := range []string{"a", "b"} {
		var id int32
		if err := conn.QueryRow(ctx, "INSERT INTO "+table+" (v) VALUES ($1) RETURNING id", v).Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func transaction(ctx context.Context, conn *pgx.Conn, table string) (any, error) {
	if _, err := conn.Exec(ctx, "CREATE TABLE "+table+" (id int PRIMARY KEY)"); err != nil {
		return nil, err
	}
	for i, keep := range []bool{true, false} {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES ($1)", i); err != nil {
			return nil, err
		}
		inner, err := tx.Begin(ctx) // a savepoint
		if err != nil {
			return nil, err
		}
		if _, err := inner.Exec(ctx, "INSERT INTO "+table+" VALUES ($1)", 10+i); err != nil {
			return nil, err
		}
		if err := inner.Rollback(ctx); err != nil {
			return nil, err
		}
		if keep {
			err = tx.Commit(ctx)
		} else {
			err = tx.Rollback(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	rows, err := conn.Query(ctx, "SELECT id FROM "+table+" ORDER BY id")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int32])
}
