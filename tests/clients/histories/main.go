// A second opinion on isolation and durability: histories of concurrent clients, with the server killed under them, are
// recorded over the wire and judged by an established checker of linearizability. See judge.go for what that means.
//
//	histories HOLDFAST SCRATCH KEEP    records on servers of its own below SCRATCH; the histories stay in KEEP
//	histories FILE...                  judges recorded histories again
//
// One line a case, "case<TAB>ok", "case<TAB>skip: why" where the search did not end in time, or what went wrong. Each
// history is also made wrong in several ways, and each of those has to be refused. HOLDFAST_SEED repeats the choices of
// a run; what the clients make of them is never quite the same.
package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// The search for an order ends here, undecided. It usually takes milliseconds.
const searchMax = 5 * time.Second

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: histories HOLDFAST SCRATCH KEEP | histories FILE...")
		os.Exit(2)
	}
	var err error
	if strings.HasSuffix(os.Args[1], ".jsonl") {
		err = again(os.Args[1:])
	} else if len(os.Args) == 4 {
		err = recordAndJudge(os.Args[1], os.Args[2], os.Args[3])
	} else {
		err = errors.New("three arguments are wanted: HOLDFAST SCRATCH KEEP")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "histories:", err)
		os.Exit(1)
	}
}

func recordAndJudge(binary, scratch, keep string) error {
	seed := rand.Uint64()
	if text := os.Getenv("HOLDFAST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			return fmt.Errorf("HOLDFAST_SEED: %w", err)
		}
	}
	s, err := newServer(binary, scratch)
	if err != nil {
		return err
	}
	if err := s.start(); err != nil {
		return err
	}
	defer s.kill()
	families := allFamilies()
	started := time.Now()
	finding := "ok"
	if err := record(s, families, seed); err != nil {
		finding = fmt.Sprintf("seed %d: %s", seed, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	// What was recorded until something went wrong is judged all the same.
	fmt.Printf("clients_and_restarts\t%s\n", finding)
	fmt.Fprintf(os.Stderr, "  seed %d, recorded in %.1f s with %d kills\n", seed, time.Since(started).Seconds(), kills)
	if err := os.MkdirAll(keep, 0o755); err != nil {
		return err
	}
	for _, f := range families {
		file := filepath.Join(keep, f.name+".jsonl")
		if err := writeHistory(file, f.history); err != nil {
			return err
		}
		report(f.name, f.history, file)
	}
	return nil
}

func again(files []string) error {
	for _, file := range files {
		history, err := readHistory(file)
		if err != nil {
			return err
		}
		report(strings.TrimSuffix(filepath.Base(file), ".jsonl"), history, file)
	}
	return nil
}

// report judges a history, and its wrong copies.
func report(name string, history []operation, file string) {
	finding := judged(name, history, file)
	fmt.Printf("%s\t%s\n", name, finding)
	if finding != "ok" {
		return // its wrong copies would say nothing
	}
	for _, w := range wrongs {
		fmt.Printf("%s.%s_is_refused\t%s\n", name, w.name, refused(w, history))
	}
}

func judged(name string, history []operation, file string) string {
	v, err := judge(history, searchMax)
	if err != nil {
		return err.Error()
	}
	count := map[string]int{}
	for _, o := range history {
		count[o.Outcome]++
	}
	fmt.Fprintf(os.Stderr, "  %-28s %5d ok, %3d failed, %2d unknown; %v\n", name, count[outcomeOk],
		count[outcomeFailed], count[outcomeUnknown], v.took.Round(time.Millisecond))
	switch v.result {
	case porcupine.Ok:
		return "ok"
	case porcupine.Unknown:
		return fmt.Sprintf("skip: undecided after %v; the history is %s", searchMax, file)
	}
	picture := strings.TrimSuffix(file, ".jsonl") + ".html"
	if err := porcupine.VisualizePath(v.model, v.info, picture); err != nil {
		picture = err.Error()
	}
	return fmt.Sprintf("no order of the transactions explains this history: %s; how far one gets: %s", file, picture)
}

// refused makes a history wrong and judges it.
func refused(w wrong, history []operation) string {
	history = copied(history)
	if err := w.make(history); err != nil {
		return err.Error()
	}
	v, err := judge(history, searchMax)
	switch {
	case err != nil:
		return err.Error()
	case v.result == porcupine.Unknown:
		return fmt.Sprintf("skip: undecided after %v", searchMax)
	case v.result == porcupine.Ok:
		return "a wrong history passed"
	}
	return "ok"
}
