// pgx v5 as a client: the same program runs against PostgreSQL and against Holdfast and prints one line a case,
// "case<TAB>finding". A finding that starts with "! " is an error nobody expected. PGHOST, PGPORT, PGUSER and
// PGDATABASE say where.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A case gets a connection of its own and returns what it found.
type testCase struct {
	name string
	run  func(ctx context.Context, conn *pgx.Conn) (any, error)
}

// The ways pgx can send a query; every case of modeCases runs once in each.
var modes = map[string]pgx.QueryExecMode{
	"cached_statement": pgx.QueryExecModeCacheStatement,
	"describe_exec":    pgx.QueryExecModeDescribeExec,
	"exec":             pgx.QueryExecModeExec,
	"simple":           pgx.QueryExecModeSimpleProtocol,
}

var modeNames = []string{"cached_statement", "describe_exec", "exec", "simple"}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "hosts" {
		hosts(os.Args[2:])
		return
	}
	if len(os.Args) == 5 && os.Args[1] == "access" {
		access(os.Args[2], os.Args[3], os.Args[4])
		return
	}
	for _, mode := range modeNames {
		for _, c := range modeCases {
			report(c.name+"_"+mode, modes[mode], func(ctx context.Context, conn *pgx.Conn) (any, error) {
				schema := "m_" + mode + "_" + c.name
				return c.run(ctx, conn, schema)
			})
		}
	}
	for _, c := range append(bulkCases, errorCases...) {
		report(c.name, pgx.QueryExecModeCacheStatement, c.run)
	}
}

func report(name string, mode pgx.QueryExecMode, run func(context.Context, *pgx.Conn) (any, error)) {
	finding, err := attempt(mode, run)
	text := fmt.Sprintf("%#v", finding)
	if err != nil {
		text = "! " + err.Error()
	}
	fmt.Printf("%s\t%s\n", name, strings.ReplaceAll(text, "\n", "\\n"))
}

func attempt(mode pgx.QueryExecMode, run func(context.Context, *pgx.Conn) (any, error)) (any, error) {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	config, err := pgx.ParseConfig("")
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = mode
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	return run(ctx, conn)
}

// The SQLSTATE of an error that had to come.
func sqlstate(err error) string {
	var pgError *pgconn.PgError
	if errors.As(err, &pgError) {
		return pgError.Code
	}
	if err == nil {
		return "no error"
	}
	return "! " + err.Error()
}
