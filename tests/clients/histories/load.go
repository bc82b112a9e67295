// The load: clients of every family at once, the server killed under them and started again, and what they did
// recorded by family.

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// The server is killed so often; one more round ends in peace.
	kills = 10
	// Acknowledged transactions of each family in a round, before the server may be killed.
	goal = 60
	// A family ahead of its goal goes slower by this, so that it waits for the others and is still at work.
	aheadPause = 4 * time.Millisecond
	// Only a server that hangs meets it.
	roundMax = 2 * time.Minute
)

// A family of transactions on tables of their own, and so a history of its own.
type family struct {
	name    string
	clients int
	keys    int
	tables  string // SQL that makes and fills them
	initial string // what each key holds then
	final   string // SQL that reads each key's value in the order of the keys
	run     func(c *client, o *operation) error

	mutex   sync.Mutex
	history []operation
	ok      atomic.Int64
	tokens  atomic.Int64
}

func (f *family) add(o operation) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.history = append(f.history, o)
}

// token is a number that nobody has used in this history.
func (f *family) token() int64 { return f.tokens.Add(1) }

// A client is a connection and the choices of the one who uses it.
type client struct {
	family  *family
	process int
	number  int // among its family's
	conn    *pgx.Conn
	choose  *rand.Rand
}

// Sent and unanswered: the transaction may have been committed.
var errUnknown = errors.New("no answer to what may have committed")

// Ways to send a statement; the clients of a family take turns.
var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec,
}

// live runs transactions until it is told to stop or the server goes away. It returns what nobody expects.
func (c *client) live(stop *atomic.Bool) error {
	for !stop.Load() {
		o := operation{Process: c.process, Start: now()}
		err := c.family.run(c, &o)
		o.End = now()
		switch {
		case err == nil:
			o.Outcome = outcomeOk
			c.family.ok.Add(1)
		case errors.Is(err, errUnknown):
			o.Outcome, o.End = outcomeUnknown, 0
		default:
			o.Outcome = outcomeFailed
		}
		c.family.add(o)
		var said *pgconn.PgError
		if errors.As(err, &said) {
			if said.Code != "40001" && said.Code != "40P01" {
				return err
			}
			if _, err := c.conn.Exec(context.Background(), "ROLLBACK"); err != nil {
				return nil // the server is gone
			}
		} else if err != nil {
			return nil
		}
		if c.family.ok.Load() > goal {
			time.Sleep(aheadPause)
		}
	}
	return nil
}

// record makes the tables, runs all rounds, and reads every family's last state.
func record(s *server, families []*family, seed uint64) error {
	if err := setUp(s, families); err != nil {
		return fmt.Errorf("making the tables: %w", err)
	}
	process := 1
	for round := range kills + 1 {
		killed, err := runRound(s, families, &process, rand.New(rand.NewPCG(seed, uint64(round))), round < kills)
		if err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
		if round == kills {
			break
		}
		if err := s.start(); err != nil {
			return err
		}
		for _, f := range families {
			f.add(operation{Process: -1, Start: killed, End: now(), Outcome: outcomeRestart})
		}
	}
	return readLast(s, families)
}

// runRound lets all clients work until each family has reached its goal, and a random moment longer.
func runRound(s *server, families []*family, process *int, choose *rand.Rand, kill bool) (int64, error) {
	var clients []*client
	for _, f := range families {
		f.ok.Store(0)
		for number := range f.clients {
			conn, err := s.connect(modes[number%len(modes)])
			if err != nil {
				return 0, err
			}
			defer conn.Close(context.Background())
			seeded := rand.New(rand.NewPCG(choose.Uint64(), uint64(number)))
			clients = append(clients, &client{f, *process, number, conn, seeded})
			*process++
		}
	}
	var stop atomic.Bool
	failures := make(chan error, len(clients))
	for _, c := range clients {
		go func() { failures <- c.live(&stop) }()
	}
	reached := waitForGoal(families, len(clients), failures)
	time.Sleep(time.Duration(choose.IntN(100)) * time.Millisecond)
	killed := now()
	if kill && reached == nil {
		s.kill()
	} else {
		stop.Store(true)
	}
	for range clients {
		reached = errors.Join(reached, <-failures)
	}
	return killed, reached
}

func waitForGoal(families []*family, clients int, failures chan error) error {
	for deadline := time.Now().Add(roundMax); ; time.Sleep(5 * time.Millisecond) {
		behind := ""
		for _, f := range families {
			if f.ok.Load() < goal {
				behind = f.name
			}
		}
		if behind == "" {
			return nil
		}
		if len(failures) > 0 {
			err := <-failures
			failures <- err
			return fmt.Errorf("a client ended before the server was killed (%w)", err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not done after %v with %d clients", behind, roundMax, clients)
		}
	}
}

func setUp(s *server, families []*family) error {
	conn, err := s.connect(pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	for _, f := range families {
		o := operation{Start: now(), Outcome: outcomeOk}
		if _, err := conn.Exec(context.Background(), f.tables); err != nil {
			return err
		}
		for key := range f.keys {
			if f.initial != "" {
				o.Steps = append(o.Steps, step{Do: doWrite, Key: key, Value: fmt.Sprintf(f.initial, key)})
			}
		}
		o.End = now()
		f.add(o)
	}
	return nil
}

func readLast(s *server, families []*family) error {
	conn, err := s.connect(pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	for _, f := range families {
		o := operation{Start: now(), Outcome: outcomeOk}
		if err := readKeys(conn, f.final, &o); err != nil {
			return err
		}
		o.End = now()
		f.add(o)
	}
	return nil
}

// readKeys runs a query whose rows are a key and its value, and adds what it read.
func readKeys(conn *pgx.Conn, sql string, o *operation) error {
	rows, err := conn.Query(context.Background(), sql)
	if err != nil {
		return err
	}
	var key int
	var value string
	_, err = pgx.ForEachRow(rows, []any{&key, &value}, func() error {
		o.Steps = append(o.Steps, step{Do: doRead, Key: key, Value: value})
		return nil
	})
	return err
}
