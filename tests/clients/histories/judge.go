// The judgement, by porcupine (github.com/anishathalye/porcupine): is there one order of all transactions that explains
// every result, and in which none stands before another that had been answered when it began?
//
// A transaction over several keys is one operation on the whole state, so that serializable and in real time is
// linearizable here. What has an unknown outcome is settled by what the history shows: every write carries a token of
// its own, and a write that no read ever showed is left out: that changes no result but that of a replacement which found another
// value. One that was seen has to have happened between its start and the end of the restart that cut it off: a dead server
// writes no more. With HISTORIES_UNSEEN=1 the unseen ones may have happened at any moment after their start, or never, which is the
// same as behind everything else: right also where such replacements are the only witnesses, and much slower.

package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// The most keys a history has.
const keysMax = 8

// The values of all keys, by number.
type state [keysMax]int32

// What porcupine gives to the model: an operation's steps with values by number.
type numbered struct {
	steps []numberedStep
	text  string
}

type numberedStep struct {
	do       string
	key      int
	value    int32
	expected int32
	changed  bool
	free     bool // whether it changed anything is not known
}

// values gives each text a number, so that states are compared and remembered cheaply.
type values struct {
	mutex    sync.Mutex
	texts    []string
	numbers  map[string]int32
	appended map[[2]int32]int32
}

func newValues() *values {
	return &values{texts: []string{""}, numbers: map[string]int32{"": 0}, appended: map[[2]int32]int32{}}
}

func (v *values) number(text string) int32 {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	return v.numberLocked(text)
}

func (v *values) numberLocked(text string) int32 {
	number, known := v.numbers[text]
	if !known {
		number = int32(len(v.texts))
		v.texts = append(v.texts, text)
		v.numbers[text] = number
	}
	return number
}

func (v *values) appendTo(list, value int32) int32 {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	pair := [2]int32{list, value}
	number, known := v.appended[pair]
	if !known {
		text := v.texts[value]
		if list != 0 {
			text = v.texts[list] + "," + text
		}
		number = v.numberLocked(text)
		v.appended[pair] = number
	}
	return number
}

// step runs a transaction on a state; false when its results could not have come from it.
func (v *values) step(before, input, _ any) (bool, any) {
	now := before.(state)
	for _, s := range input.(*numbered).steps {
		switch s.do {
		case doRead:
			if now[s.key] != s.value {
				return false, before
			}
		case doWrite:
			now[s.key] = s.value
		case doAppend:
			now[s.key] = v.appendTo(now[s.key], s.value)
		case doReplace:
			changed := s.changed
			if s.free {
				changed = now[s.key] == s.expected
			}
			if (now[s.key] == s.expected) != changed {
				return false, before
			}
			if changed {
				now[s.key] = s.value
			}
		}
	}
	return true, now
}

// settle leaves what happened or may have: everything acknowledged, and the unknown, with the latest moment it can have happened
// at. It fails on a history that is not well formed.
func settle(history []operation) ([]operation, error) {
	seen := map[string]bool{}
	for _, o := range history {
		for _, s := range o.Steps {
			if s.Key < 0 || s.Key >= keysMax {
				return nil, fmt.Errorf("key %d is not between 0 and %d", s.Key, keysMax-1)
			}
			if o.Outcome == outcomeOk && s.Do == doRead {
				for _, t := range tokens(s.Value) {
					seen[t] = true
				}
			}
			if o.Outcome == outcomeOk && s.Do == doReplace && s.Changed {
				for _, t := range tokens(s.Expected) {
					seen[t] = true
				}
			}
		}
	}
	var happened []operation
	for _, o := range history {
		switch o.Outcome {
		case outcomeOk:
			happened = append(happened, o)
		case outcomeUnknown:
			wasSeen := slices.ContainsFunc(o.written(), func(token string) bool { return seen[token] })
			switch {
			case wasSeen:
				happened = append(happened, bounded(o, history))
			case len(o.written()) > 0 && os.Getenv("HISTORIES_UNSEEN") != "":
				o.End = math.MaxInt64
				happened = append(happened, o)
			}
		case outcomeFailed, outcomeRestart:
		default:
			return nil, fmt.Errorf("no outcome is named %q", o.Outcome)
		}
	}
	return happened, nil
}

// bounded is an unanswered operation that happened, ended at the restart that cut it off. A conditional write among its
// steps did write, else nobody could have seen it.
func bounded(o operation, history []operation) operation {
	o.End = math.MaxInt64
	for _, r := range history {
		if r.Outcome == outcomeRestart && r.End >= o.Start && r.End < o.End {
			o.End = r.End
		}
	}
	steps := slices.Clone(o.Steps)
	for i := range steps {
		steps[i].Changed = steps[i].Do == doReplace
	}
	o.Steps = steps
	return o
}

// A verdict: what porcupine says, of how many operations, and how long it took.
type verdict struct {
	result     porcupine.CheckResult
	operations int
	took       time.Duration
	info       porcupine.LinearizationInfo
	model      porcupine.Model
}

// judge searches for an order. Keys are judged apart where every operation has one key only.
func judge(history []operation, limit time.Duration) (verdict, error) {
	happened, err := settle(history)
	if err != nil {
		return verdict{}, err
	}
	v := newValues()
	var operations []porcupine.Operation
	apart := true
	for _, o := range happened {
		input := &numbered{text: fmt.Sprint(o.Steps)}
		for _, s := range o.Steps {
			value, expected := v.number(s.Value), v.number(s.Expected)
			free := o.Outcome == outcomeUnknown && !s.Changed
			input.steps = append(input.steps, numberedStep{s.Do, s.Key, value, expected, s.Changed, free})
			apart = apart && s.Key == o.Steps[0].Key
		}
		operations = append(operations, porcupine.Operation{
			ClientId: o.Process, Input: input, Call: o.Start, Return: o.End,
		})
	}
	model := porcupine.Model{
		Init:              func() any { return state{} },
		Step:              v.step,
		DescribeOperation: func(input, _ any) string { return input.(*numbered).text },
	}
	if apart {
		model.Partition = byKey
	}
	started := time.Now()
	result, info := porcupine.CheckOperationsVerbose(model, operations, limit)
	return verdict{result, len(operations), time.Since(started), info, model}, nil
}

func byKey(operations []porcupine.Operation) [][]porcupine.Operation {
	var parts [keysMax][]porcupine.Operation
	for _, o := range operations {
		if steps := o.Input.(*numbered).steps; len(steps) > 0 {
			parts[steps[0].key] = append(parts[steps[0].key], o)
		}
	}
	var filled [][]porcupine.Operation
	for _, part := range parts {
		if len(part) > 0 {
			filled = append(filled, part)
		}
	}
	return filled
}
