// The families of transactions: lists, registers, a bank, places that are swapped. Each writes values with tokens of
// its own (see history.go).

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const serializable = "serializable"

func allFamilies() []*family {
	return []*family{
		{
			name: "lists.serializable", clients: 4, keys: 5, run: lists,
			tables: "CREATE TABLE lists (k int PRIMARY KEY, v text NOT NULL)",
			final:  "SELECT k, v FROM lists ORDER BY k",
		},
		{
			name: "registers.every_level", clients: 6, keys: 3, run: registers,
			tables:  "CREATE TABLE registers (k int PRIMARY KEY, v text NOT NULL); INSERT INTO registers VALUES (0, 'r0'), (1, 'r1'), (2, 'r2')",
			initial: "r%d", final: "SELECT k, v FROM registers ORDER BY k",
		},
		{
			name: "bank.serializable", clients: 3, keys: 4, run: bankSerializable,
			tables: bankTables("accounts"), initial: "100@a%d", final: balances("accounts"),
		},
		{
			name: "bank.read_committed_locking", clients: 3, keys: 4, run: bankLocking,
			tables: bankTables("tills"), initial: "100@a%d", final: balances("tills"),
		},
		{
			name: "swaps.serializable", clients: 3, keys: 4, run: swaps,
			tables: "CREATE TABLE places (k int PRIMARY KEY, place int UNIQUE NOT NULL, writer text NOT NULL); INSERT INTO " +
				"places VALUES (0, 0, 'p0'), (1, 1, 'p1'), (2, 2, 'p2'), (3, 3, 'p3')",
			initial: "%[1]d@p%[1]d", final: "SELECT k, place || '@' || writer FROM places ORDER BY k",
		},
	}
}

func (c *client) exec(sql string) (pgconn.CommandTag, error) {
	return c.conn.Exec(context.Background(), sql)
}

// alone runs a statement that is a transaction of its own: without an answer its outcome is unknown.
func (c *client) alone(sql string) (pgconn.CommandTag, error) {
	tag, err := c.exec(sql)
	return tag, unanswered(err)
}

// unanswered tells an answer of the server from none to something that may have committed.
func unanswered(err error) error {
	var said *pgconn.PgError
	if err == nil || errors.As(err, &said) {
		return err
	}
	return fmt.Errorf("%w: %w", errUnknown, err)
}

// transaction runs steps between BEGIN and COMMIT; only COMMIT's lost answer leaves doubt.
func (c *client) transaction(o *operation, level string, steps func() error) error {
	o.Level = level
	if _, err := c.exec("BEGIN ISOLATION LEVEL " + strings.ToUpper(level)); err != nil {
		return err
	}
	if err := steps(); err != nil {
		return err
	}
	_, err := c.exec("COMMIT")
	return unanswered(err)
}

// Appends to lists and reads of them, one to five in a transaction; every other client sends it in one message, the
// others step by step.
func lists(c *client, o *operation) error {
	for range 1 + c.choose.IntN(5) {
		s := step{Do: doRead, Key: c.choose.IntN(c.family.keys)}
		if c.choose.IntN(2) == 0 {
			s.Do, s.Value = doAppend, fmt.Sprint(c.family.token())
		}
		o.Steps = append(o.Steps, s)
	}
	if c.number%2 == 0 {
		return c.listsInOneMessage(o)
	}
	return c.transaction(o, serializable, func() error {
		for i := range o.Steps {
			var err error
			if s := &o.Steps[i]; s.Do == doRead {
				err = c.conn.QueryRow(context.Background(), listSQL(*s)).Scan(&s.Value)
				if errors.Is(err, pgx.ErrNoRows) { // nobody has made the row
					err = nil
				}
			} else {
				_, err = c.exec(listSQL(*s))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// listSQL appends or reads; the row is made by whoever comes first.
func listSQL(s step) string {
	if s.Do == doRead {
		return fmt.Sprintf("SELECT v FROM lists WHERE k = %d", s.Key)
	}
	return fmt.Sprintf("INSERT INTO lists VALUES (%d, '%s') ON CONFLICT (k) DO UPDATE SET v = lists.v || ',%[2]s'", s.Key, s.Value)
}

// listsInOneMessage sends everything from BEGIN to COMMIT at once, so that any lost answer leaves doubt.
func (c *client) listsInOneMessage(o *operation) error {
	o.Level = serializable
	sql := "BEGIN ISOLATION LEVEL SERIALIZABLE"
	for _, s := range o.Steps {
		sql += "; " + listSQL(s)
	}
	results, err := c.conn.PgConn().Exec(context.Background(), sql+"; COMMIT").ReadAll()
	if err != nil {
		// What was read did not arrive.
		o.Steps = slices.DeleteFunc(o.Steps, func(s step) bool { return s.Do == doRead })
		return unanswered(err)
	}
	for i := range o.Steps {
		if rows := results[i+1].Rows; o.Steps[i].Do == doRead && len(rows) > 0 {
			o.Steps[i].Value = string(rows[0][0])
		}
	}
	return nil
}

// Single statements on single keys, outside transactions, each client at a level of its own: read, write, and write if
// the value is still the one last read.
func registers(c *client, o *operation) error {
	o.Level = []string{"read committed", "repeatable read", serializable}[c.number%3]
	if _, err := c.exec(fmt.Sprintf("SET default_transaction_isolation = '%s'", o.Level)); err != nil {
		return err
	}
	o.Start = now()
	key, token := c.choose.IntN(c.family.keys), fmt.Sprint(c.family.token())
	switch c.choose.IntN(3) {
	case 0:
		return unanswered(readKeys(c.conn, fmt.Sprintf("SELECT k, v FROM registers WHERE k = %d", key), o))
	case 1:
		o.Steps = []step{{Do: doWrite, Key: key, Value: token}}
		_, err := c.alone(fmt.Sprintf("UPDATE registers SET v = '%s' WHERE k = %d", token, key))
		return err
	}
	// What to expect comes from a read of its own, which is no part of this operation's steps.
	var look operation
	if err := readKeys(c.conn, fmt.Sprintf("SELECT k, v FROM registers WHERE k = %d", key), &look); err != nil {
		return err
	}
	o.Start = now()
	expected := look.Steps[0].Value
	o.Steps = []step{{Do: doReplace, Key: key, Value: token, Expected: expected}}
	sql := "UPDATE registers SET v = '%s' WHERE k = %d AND v = '%s'"
	tag, err := c.alone(fmt.Sprintf(sql, token, key, expected))
	o.Steps[0].Changed = tag.RowsAffected() == 1
	return err
}

func bankTables(name string) string {
	return fmt.Sprintf("CREATE TABLE %[1]s (k int PRIMARY KEY, balance int NOT NULL, writer text NOT NULL); INSERT INTO %[1]s "+
		"VALUES (0, 100, 'a0'), (1, 100, 'a1'), (2, 100, 'a2'), (3, 100, 'a3')", name)
}

func balances(table string) string {
	return "SELECT k, balance || '@' || writer FROM " + table + " ORDER BY k"
}

func bankSerializable(c *client, o *operation) error {
	return bank(c, o, "accounts", serializable, "")
}

// Below SERIALIZABLE the locks of the rows read make a transfer safe, and one statement reads one snapshot.
func bankLocking(c *client, o *operation) error {
	return bank(c, o, "tills", "read committed", " FOR UPDATE")
}

// Transfers between two accounts that read first and write what they computed; sometimes a look at all of them.
func bank(c *client, o *operation, table, level, locking string) error {
	return c.transaction(o, level, func() error {
		if c.choose.IntN(4) == 0 {
			return readKeys(c.conn, balances(table), o)
		}
		from := c.choose.IntN(c.family.keys)
		to := (from + 1 + c.choose.IntN(c.family.keys-1)) % c.family.keys
		which := fmt.Sprintf(" WHERE k IN (%d, %d) ORDER BY k%s", from, to, locking)
		if err := readKeys(c.conn, strings.Replace(balances(table), " ORDER BY k", which, 1), o); err != nil {
			return err
		}
		amount := 1 + c.choose.IntN(9)
		token := c.family.token()
		for _, read := range o.Steps {
			change := amount
			if read.Key == from {
				change = -amount
			}
			var balance int
			if _, err := fmt.Sscanf(read.Value, "%d@", &balance); err != nil {
				return fmt.Errorf("balance %q: %w", read.Value, err)
			}
			o.Steps = append(o.Steps, step{Do: doWrite, Key: read.Key, Value: fmt.Sprintf("%d@%d", balance+change, token)})
			sql := fmt.Sprintf("UPDATE %s SET balance = %d, writer = '%d' WHERE k = %d", table, balance+change, token, read.Key)
			if _, err := c.exec(sql); err != nil {
				return err
			}
		}
		return nil
	})
}

// Two rows exchange their values in a unique column, by way of a value that nobody else has.
func swaps(c *client, o *operation) error {
	return c.transaction(o, serializable, func() error {
		one := c.choose.IntN(c.family.keys)
		other := (one + 1 + c.choose.IntN(c.family.keys-1)) % c.family.keys
		which := fmt.Sprintf(" WHERE k IN (%d, %d) ORDER BY k", one, other)
		if err := readKeys(c.conn, strings.Replace(c.family.final, " ORDER BY k", which, 1), o); err != nil {
			return err
		}
		token := c.family.token()
		a, b := o.Steps[0], o.Steps[1]
		placeA, _, _ := strings.Cut(a.Value, "@")
		placeB, _, _ := strings.Cut(b.Value, "@")
		o.Steps = append(o.Steps,
			step{Do: doWrite, Key: a.Key, Value: fmt.Sprintf("%s@%d", placeB, token)},
			step{Do: doWrite, Key: b.Key, Value: fmt.Sprintf("%s@%d", placeA, token)})
		set := "UPDATE places SET place = %s, writer = '%d' WHERE k = %d"
		for _, sql := range []string{
			fmt.Sprintf(set, fmt.Sprint(-1-c.process), token, a.Key),
			fmt.Sprintf(set, placeA, token, b.Key),
			fmt.Sprintf(set, placeB, token, a.Key),
		} {
			if _, err := c.exec(sql); err != nil {
				return err
			}
		}
		return nil
	})
}
