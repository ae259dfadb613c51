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
		// What its README recommends for one server of Redis 7.0.5 or later; but for one time: by default it gives up on
		// an answer after 20 ms to try the next key. With one key there is no next one, and whoever gave up waits for a
		// message about a key that nobody has.
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption:   rueidis.ClientOption{InitAddress: []string{address}},
			KeyMajority:    1,
			NoLoopTracking: true,
			KeyValidity:    a.lease(),
			TryNextAfter:   5 * time.Second,
		})
		return rueidisLock{locker}, err
	case "redsync":
		// The client and the pool of its example, as they come. Pauses between tries are its own, 50 to 250 ms; by default
		// it gives up after 32 of them, and here whoever waits waits until he has the lock.
		client := goredislib.NewClient(&goredislib.Options{Addr: address})
		return redSync{redsync.New(goredis.NewPool(client)), a.lease()}, nil
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
