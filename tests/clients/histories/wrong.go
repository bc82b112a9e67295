// Histories made wrong on purpose, from a good one that was just recorded: each has to be refused, or the judge is
// worth nothing. Each change is one that a broken server would show.

package main

import (
	"cmp"
	"errors"
	"slices"
	"strings"
)

// What is done to a history. It changes it in place and fails when the history offers no place for it.
type wrong struct {
	name string
	make func(history []operation) error
}

var wrongs = []wrong{
	{"acknowledged_write_lost", acknowledgedWriteLost},
	{"write_lost_in_the_restart", writeLostInTheRestart},
	{"stale_read", staleRead},
	{"failed_write_seen", failedWriteSeen},
}

var errNoPlace = errors.New("the history has no place for this")

func copied(history []operation) []operation {
	history = slices.Clone(history)
	for i := range history {
		history[i].Steps = slices.Clone(history[i].Steps)
	}
	return history
}

// without is what a key would hold had a writer never been: a list lacks its number, anything else has the value of the
// write before.
func without(value, token, before string) string {
	if !strings.Contains(value, ",") {
		if hasToken(value, token) {
			return before
		}
		return value
	}
	parts := slices.DeleteFunc(strings.Split(value, ","), func(part string) bool { return part == token })
	return strings.Join(parts, ",")
}

// read is a place in the history where an acknowledged operation read a value.
type read struct{ operation, step int }

func reads(history []operation, wanted func(o *operation, s *step) bool) []read {
	var found []read
	for i := range history {
		for j := range history[i].Steps {
			o, s := &history[i], &history[i].Steps[j]
			if o.Outcome == outcomeOk && s.Do == doRead && wanted(o, s) {
				found = append(found, read{i, j})
			}
		}
	}
	slices.SortFunc(found, func(a, b read) int {
		return cmp.Compare(history[a.operation].Start, history[b.operation].Start)
	})
	return found
}

// valueBefore is what some read showed of a key before a write, or nothing.
func valueBefore(history []operation, key int, start int64, token string) string {
	before := reads(history, func(o *operation, s *step) bool {
		return s.Key == key && o.End < start && !hasToken(s.Value, token)
	})
	if len(before) == 0 {
		return ""
	}
	last := before[len(before)-1]
	return history[last.operation].Steps[last.step].Value
}

// A victim is an acknowledged write, and the reads after it that show it.
type victim struct {
	key    int
	token  string
	before string
	seen   []read
}

// findVictim looks through the operations from `first` on, and round to it again, for a write of a client that was
// acknowledged by `until` and that operations begun after `until` show. Without `until` that is the write's own end.
func findVictim(history []operation, first, direction int, until int64) (*victim, error) {
	for n := range history {
		i := (first + direction*n + len(history)*2) % len(history)
		o := &history[i]
		if o.Outcome != outcomeOk || o.Process == 0 || until != 0 && o.End > until {
			continue
		}
		since := max(until, o.End)
		for _, s := range o.Steps {
			if s.Do == doRead || s.Do == doReplace && !s.Changed {
				continue
			}
			token := tokens(s.Value)[0]
			seen := reads(history, func(o *operation, r *step) bool {
				return r.Key == s.Key && o.Start > since && hasToken(r.Value, token)
			})
			if len(seen) > 0 {
				return &victim{s.Key, token, valueBefore(history, s.Key, o.Start, token), seen}, nil
			}
		}
	}
	return nil, errNoPlace
}

func (v *victim) hideFrom(history []operation, seen []read) {
	for _, r := range seen {
		s := &history[r.operation].Steps[r.step]
		s.Value = without(s.Value, v.token, v.before)
	}
}

// One acknowledged write is in no later read, as if it had never been.
func acknowledgedWriteLost(history []operation) error {
	v, err := findVictim(history, len(history)/2, 1, 0)
	if err == nil {
		v.hideFrom(history, v.seen)
	}
	return err
}

// A write acknowledged before the server was killed is gone after its restart: the first of them that has such a write, as
// what was written last before a kill may be overwritten before anybody has read it.
func writeLostInTheRestart(history []operation) error {
	for restart, o := range history {
		if o.Outcome != outcomeRestart {
			continue
		}
		if v, err := findVictim(history, restart, -1, o.Start); err == nil {
			v.hideFrom(history, v.seen)
			return nil
		}
	}
	return errNoPlace
}

// One read that began after a write was acknowledged does not show it; later ones do.
func staleRead(history []operation) error {
	v, err := findVictim(history, len(history)/2, 1, 0)
	if err == nil {
		v.hideFrom(history, v.seen[:1])
	}
	return err
}

// A write whose transaction was told to have failed is seen all the same.
func failedWriteSeen(history []operation) error {
	v, err := findVictim(history, len(history)/2, 1, 0)
	if err != nil {
		return err
	}
	for i := range history {
		if slices.Contains(history[i].written(), v.token) {
			history[i].Outcome = outcomeFailed
		}
	}
	return nil
}
