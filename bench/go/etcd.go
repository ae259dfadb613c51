package main

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// etcdLock is the mutex of etcd's own client. A session is one holder: to another mutex of the same name it gives the lock at once.
// So tasks that contend have a session each, all on one connection; tasks with names of their own share one.
type etcdLock struct{ sessions chan *concurrency.Session }

func connectEtcd(a args) (Contender, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{strings.TrimPrefix(a["url"], "etcd://")}})
	if err != nil {
		return nil, err
	}
	tasks, sessions := a.number("tasks"), 1
	if a["job"] != "pairs" {
		sessions = tasks
	}
	lock := etcdLock{make(chan *concurrency.Session, tasks)}
	for range sessions {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(int(a.lease().Seconds())))
		if err != nil {
			return nil, err
		}
		for range tasks / sessions {
			lock.sessions <- session
		}
	}
	return lock, nil
}

func (l etcdLock) Acquire(ctx context.Context, name string) (func() error, error) {
	session := <-l.sessions
	mutex := concurrency.NewMutex(session, name)
	if err := mutex.Lock(ctx); err != nil {
		l.sessions <- session
		return nil, err
	}
	return func() error {
		err := mutex.Unlock(context.Background())
		l.sessions <- session
		return err
	}, nil
}
