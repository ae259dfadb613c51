// Go's locks on etcd, controlled by commands, one per line: the protocol of interop/java.
//
// A line is `NUMBER CLIENT/THREAD VERB KIND NAME WORDS…`. CLIENT is the watchdog time of the client in milliseconds, THREAD any name:
// each has a session of its own, which is the owner to Go, and executes its commands in order. The reply is
// `= NUMBER ok|unsupported|error TEXT`, as soon as it is known. KIND is `plain`, which is concurrency.Mutex, or `read` or `write`,
// which are those of recipes.RWMutex.
//
// The program ends with its input, without releasing any lock.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
)

var errUnsupported = errors.New("unsupported")

// A lock that is acquired by `enter`, which returns the revision that Go gives its holder, or 0 where there is none.
type lock struct {
	enter func() (int64, error)
	leave func() error
}

func newLock(session *concurrency.Session, kind, name string) (lock, error) {
	switch kind {
	case "plain":
		mutex := concurrency.NewMutex(session, name)
		enter := func() (int64, error) {
			if err := mutex.Lock(context.Background()); err != nil {
				return 0, err
			}
			return mutex.Header().Revision, nil
		}
		return lock{enter, func() error { return mutex.Unlock(context.Background()) }}, nil
	case "read":
		rw := recipe.NewRWMutex(session, name)
		return lock{func() (int64, error) { return 0, rw.RLock() }, rw.RUnlock}, nil
	case "write":
		rw := recipe.NewRWMutex(session, name)
		return lock{func() (int64, error) { return 0, rw.Lock() }, rw.Unlock}, nil
	}
	return lock{}, errUnsupported
}

// A client, whose sessions have its watchdog time.
type client struct {
	etcd *clientv3.Client
	ttl  int
}

func newClient(endpoint, watchdog string) (client, error) {
	millis, err := strconv.Atoi(watchdog)
	if err != nil {
		return client{}, err
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 30 * time.Second})
	return client{etcd, (millis + 999) / 1000}, err
}

func (c client) session() (*concurrency.Session, error) {
	return concurrency.NewSession(c.etcd, concurrency.WithTTL(c.ttl))
}

// A thread has the locks that it has used, by kind and name.
type thread struct {
	client  client
	session *concurrency.Session
	locks   map[string]lock
}

func (t *thread) run(words []string) (string, error) {
	if t.session == nil {
		session, err := t.client.session()
		if err != nil {
			return "", err
		}
		t.session, t.locks = session, map[string]lock{}
	}
	verb, kind, name := words[0], words[1], words[2]
	if verb == "loop" {
		return loop(t.client, kind, name, words[3], words[4], words[5])
	}
	key := kind + " " + name
	held, ok := t.locks[key]
	if !ok {
		made, err := newLock(t.session, kind, name)
		if err != nil {
			return "", err
		}
		t.locks[key], held = made, made
	}
	switch verb {
	case "lock":
		revision, err := held.enter()
		return strconv.FormatInt(revision, 10), err
	case "unlock":
		return "released", held.leave()
	}
	return "", errUnsupported
}

// Turns of some workers, each with a session of its own. A turn is one of turn.go.
func loop(client client, kind, name, file, workers, turns string) (string, error) {
	many, err := strconv.Atoi(workers)
	if err != nil {
		return "", err
	}
	each, err := strconv.Atoi(turns)
	if err != nil {
		return "", err
	}
	failures := make(chan error, many)
	for worker := 0; worker < many; worker++ {
		go func() { failures <- work(client, kind, name, pair(file), each) }()
	}
	for worker := 0; worker < many; worker++ {
		if failure := <-failures; failure != nil {
			err = failure
		}
	}
	return strconv.Itoa(many * each), err
}

func work(client client, kind, name string, pair pair, turns int) error {
	session, err := client.session()
	if err != nil {
		return err
	}
	defer session.Close()
	held, err := newLock(session, kind, name)
	if err != nil {
		return err
	}
	for turn := 0; turn < turns; turn++ {
		revision, err := held.enter()
		if err != nil {
			return err
		}
		if kind == "read" {
			err = pair.look()
		} else {
			err = pair.raise(revision)
		}
		if err != nil {
			return err
		}
		if err = held.leave(); err != nil {
			return err
		}
	}
	return nil
}

type command struct {
	number string
	words  []string
}

func main() {
	endpoint := os.Args[1]
	var output sync.Mutex
	say := func(number, kind, text string) {
		output.Lock()
		defer output.Unlock()
		fmt.Printf("= %s %s %s\n", number, kind, strings.Join(strings.Fields(text), " "))
	}
	clients := map[string]client{}
	threads := map[string]chan command{}
	say("0", "ok", "ready")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		words := strings.Fields(input.Text())
		number, name, words := words[0], words[1], words[2:]
		commands, ok := threads[name]
		if !ok {
			watchdog := strings.SplitN(name, "/", 2)[0]
			if _, ok := clients[watchdog]; !ok {
				made, err := newClient(endpoint, watchdog)
				if err != nil {
					say(number, "error", err.Error())
					continue
				}
				clients[watchdog] = made
			}
			commands = make(chan command, 16)
			threads[name] = commands
			go func(thread thread) {
				for command := range commands {
					text, err := thread.run(command.words)
					switch {
					case errors.Is(err, errUnsupported):
						say(command.number, "unsupported", strings.Join(command.words, " "))
					case err != nil:
						say(command.number, "error", err.Error())
					default:
						say(command.number, "ok", text)
					}
				}
			}(thread{client: clients[watchdog]})
		}
		commands <- command{number, words}
	}
}
