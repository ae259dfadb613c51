package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

func connect(a args) (Contender, error) {
	address := strings.TrimPrefix(a["url"], "redis://")
	switch a["contender"] {
	case "rueidislock":
		// The settings that its README recommends for one server of Redis 7.0.5 or later, except for one time-out: by default
		// the client gives up on a reply after 20 ms and tries the next key. With one key there is no next key, and the
		// waiter would wait for a message about a key that has no holder.
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption:   rueidis.ClientOption{InitAddress: []string{address}},
			KeyMajority:    1,
			NoLoopTracking: true,
			KeyValidity:    a.lease(),
			TryNextAfter:   5 * time.Second,
		})
		return rueidisLock{locker}, err
	case "redsync":
		// The client and the pool of its example, unchanged. The pauses between attempts are its defaults, 50 to 250 ms; by
		// default a waiter gives up after 32 attempts, and here a waiter waits until it has the lock.
		client := goredislib.NewClient(&goredislib.Options{Addr: address})
		return redSync{redsync.New(goredis.NewPool(client)), a.lease()}, nil
	case "go-etcd":
		return connectEtcd(a)
	}
	return nil, fmt.Errorf("there is no contender %s", a["contender"])
}

type rueidisLock struct{ locker rueidislock.Locker }

func (l rueidisLock) Acquire(ctx context.Context, name string) (func() error, error) {
	_, cancel, err := l.locker.WithContext(ctx, name)
	return func() error { cancel(); return nil }, err
}

type redSync struct {
	sync  *redsync.Redsync
	lease time.Duration
}

func (s redSync) Acquire(ctx context.Context, name string) (func() error, error) {
	mutex := s.sync.NewMutex(name, redsync.WithExpiry(s.lease), redsync.WithTries(1_000_000))
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	return func() error {
		_, err := mutex.UnlockContext(ctx)
		return err
	}, nil
}
