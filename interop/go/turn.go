package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Two equal numbers, each in a file, that a writer raises one after the other: `FILE.a`, then `FILE.b`. Two that are inside at once find
// them unequal, or lose an increment. `FILE.log` has a line for each increment: what was found, and the revision of the holder.
type pair string

// How long a turn takes at least.
const meanwhile = time.Millisecond

func (p pair) read(which string) (int, error) {
	text, err := os.ReadFile(string(p) + which)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// Both numbers, read one after the other.
func (p pair) look() error {
	a, err := p.read(".a")
	if err != nil {
		return err
	}
	time.Sleep(meanwhile)
	b, err := p.read(".b")
	if err != nil {
		return err
	}
	if a != b {
		return fmt.Errorf("a reader found %d and %d", a, b)
	}
	return nil
}

// Raises both numbers, one after the other.
func (p pair) raise(revision int64) error {
	a, err := p.read(".a")
	if err != nil {
		return err
	}
	b, err := p.read(".b")
	if err != nil {
		return err
	}
	if a != b {
		return fmt.Errorf("a writer found %d and %d", a, b)
	}
	next := []byte(strconv.Itoa(a + 1))
	if err = os.WriteFile(string(p)+".a", next, 0o644); err != nil {
		return err
	}
	time.Sleep(meanwhile)
	if err = os.WriteFile(string(p)+".b", next, 0o644); err != nil {
		return err
	}
	log, err := os.OpenFile(string(p)+".log", os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	_, err = fmt.Fprintf(log, "go %d %d\n", a, revision)
	return err
}
