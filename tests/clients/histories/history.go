// A recorded history: what each client did, when, and what the server told it. One JSON object a line.
//
//	{"process":3,"start_ns":10,"end_ns":20,"outcome":"ok","steps":[{"do":"read","key":1,"value":"7,9"}]}
//
// A transaction is one operation; its steps are in order. `ok` is acknowledged, `failed` certainly without effect (the
// server said so, or the connection broke before COMMIT was sent), `unknown` was sent and never answered. `restart` is
// no operation: the server was killed at its start and took connections again at its end.
//
// A value says who wrote it: a list "7,9" holds the appends 7 and 9, "100@7" is a balance of 100 written by 7. These
// numbers (tokens) occur once in a history.

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	outcomeOk      = "ok"
	outcomeFailed  = "failed"
	outcomeUnknown = "unknown"
	outcomeRestart = "restart"

	doRead    = "read"
	doWrite   = "write"
	doAppend  = "append"
	doReplace = "replace" // writes only if the value is `expected`; `changed` tells whether it was
)

// One read or write of one key.
type step struct {
	Do       string `json:"do"`
	Key      int    `json:"key"`
	Value    string `json:"value"`
	Expected string `json:"expected,omitempty"`
	Changed  bool   `json:"changed,omitempty"`
}

// One transaction, or a restart of the server.
type operation struct {
	Process int    `json:"process"`
	Start   int64  `json:"start_ns"`
	End     int64  `json:"end_ns"`
	Outcome string `json:"outcome"`
	Level   string `json:"level,omitempty"`
	Steps   []step `json:"steps,omitempty"`
}

// tokens are the writers that a value names.
func tokens(value string) []string {
	if value == "" {
		return nil
	}
	parts := strings.Split(value, ",")
	for i, part := range parts {
		parts[i] = part[strings.IndexByte(part, '@')+1:]
	}
	return parts
}

// hasToken tells whether a value names a writer.
func hasToken(value, token string) bool {
	for _, t := range tokens(value) {
		if t == token {
			return true
		}
	}
	return false
}

// written are the tokens of an operation's own writes.
func (o *operation) written() []string {
	var found []string
	for _, s := range o.Steps {
		if s.Do != doRead {
			found = append(found, tokens(s.Value)...)
		}
	}
	return found
}

var began = time.Now()

// now is nanoseconds of the monotonic clock since the program's start.
func now() int64 { return int64(time.Since(began)) }

func writeHistory(file string, history []operation) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	buffer := bufio.NewWriter(out)
	lines := json.NewEncoder(buffer)
	for i := range history {
		if err := lines.Encode(&history[i]); err != nil {
			return err
		}
	}
	return buffer.Flush()
}

func readHistory(file string) ([]operation, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var history []operation
	lines := json.NewDecoder(bufio.NewReader(in))
	lines.DisallowUnknownFields()
	for lines.More() {
		var o operation
		if err := lines.Decode(&o); err != nil {
			return nil, fmt.Errorf("%s, operation %d: %w", file, len(history)+1, err)
		}
		history = append(history, o)
	}
	return history, nil
}
