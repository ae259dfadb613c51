// The drivers of rueidislock, redsync and the mutex of etcd's own client. The protocol with the harness and the jobs are described in
// drivers/src/lib.rs and drivers/src/jobs.rs.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Contender acquires a lock and returns a function that releases it.
type Contender interface {
	Acquire(ctx context.Context, name string) (func() error, error)
}

type args map[string]string

func (a args) number(key string) int {
	number, _ := strconv.Atoi(a[key])
	return number
}

func (a args) millis(key string) time.Duration {
	return time.Duration(a.number(key)) * time.Millisecond
}

func (a args) lease() time.Duration {
	if lease := a.millis("lease_ms"); lease > 0 {
		return lease
	}
	return 30 * time.Second
}

// Histogram counts nanoseconds in the buckets of drivers/src/histogram.rs.
type Histogram struct {
	counts map[int]uint64
	sum    uint64
	max    uint64
}

func (h *Histogram) record(d time.Duration) {
	nanos := uint64(max(d, 0))
	shift := max(bits.Len64(nanos)-7, 0)
	if h.counts == nil {
		h.counts = map[int]uint64{}
	}
	h.counts[shift*64+int(nanos>>shift)]++
	h.sum += nanos
	h.max = max(h.max, nanos)
}

func (h *Histogram) merge(other *Histogram) {
	if h.counts == nil {
		h.counts = map[int]uint64{}
	}
	for bucket, count := range other.counts {
		h.counts[bucket] += count
	}
	h.sum += other.sum
	h.max = max(h.max, other.max)
}

func (h Histogram) MarshalJSON() ([]byte, error) {
	buckets := make([][2]uint64, 0, len(h.counts))
	for bucket, count := range h.counts {
		buckets = append(buckets, [2]uint64{uint64(bucket), count})
	}
	sort.Slice(buckets, func(i, j int) bool { return buckets[i][0] < buckets[j][0] })
	return json.Marshal(map[string]any{"buckets": buckets, "sum": h.sum, "max": h.max})
}

// Outcome is the line of JSON that ends a run.
type Outcome struct {
	Elapsed    int64     `json:"elapsed_ns"`
	Tasks      []uint64  `json:"tasks"`
	Grants     uint64    `json:"grants"`
	Latency    Histogram `json:"latency"`
	Handover   Histogram `json:"handover"`
	Violations uint64    `json:"violations"`
	Last       int64     `json:"last_ns"`
	Errors     uint64    `json:"errors"`
	Error      *string   `json:"error"`
}

// part is the contribution of one task to an outcome.
type part struct {
	counted, all, violations, errors uint64
	latency, handover                Histogram
	first                            error
}

func (p *part) fail(err error) {
	p.errors++
	if p.first == nil {
		p.first = err
	}
}

func total(parts []part) Outcome {
	outcome := Outcome{}
	for i := range parts {
		p := &parts[i]
		outcome.Tasks = append(outcome.Tasks, p.counted)
		outcome.Grants += p.all
		outcome.Violations += p.violations
		outcome.Errors += p.errors
		if p.first != nil && outcome.Error == nil {
			text := p.first.Error()
			outcome.Error = &text
		}
		outcome.Latency.merge(&p.latency)
		outcome.Handover.merge(&p.handover)
	}
	return outcome
}

var input = bufio.NewReader(os.Stdin)

func say(word string) {
	fmt.Println(word)
	if _, err := input.ReadString('\n'); err != nil {
		os.Exit(0)
	}
}

func end(outcome Outcome) {
	line, err := json.Marshal(outcome)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
	_, _ = input.ReadString('\n')
}

func pairs(c Contender, prefix string, tasks int, run time.Duration) Outcome {
	parts := make([]part, tasks)
	began := time.Now()
	var group sync.WaitGroup
	for task := range tasks {
		group.Go(func() {
			p, name := &parts[task], fmt.Sprintf("%s:%d", prefix, task)
			for {
				start := time.Now()
				release, err := c.Acquire(context.Background(), name)
				if err == nil {
					err = release()
				}
				if err != nil {
					p.fail(err)
				} else {
					p.latency.record(time.Since(start))
					p.counted++
					p.all++
				}
				if time.Since(began) >= run {
					return
				}
			}
		})
	}
	group.Wait()
	outcome := total(parts)
	outcome.Elapsed = time.Since(began).Nanoseconds()
	return outcome
}

func contend(c Contender, a args) Outcome {
	process, tasks, turns := a.number("process"), a.number("tasks"), uint64(a.number("turns"))
	run := a.millis("run_ms")
	work := time.Duration(a.number("work_us")) * time.Microsecond
	pause := time.Duration(a.number("pause_us")) * time.Microsecond
	names := make([]string, a.number("names"))
	for i := range names {
		names[i] = fmt.Sprintf("%s:%d", a["prefix"], i)
	}
	var draws []byte
	if path := a["draws"]; path != "" {
		draws, _ = os.ReadFile(path)
	}
	witness, err := os.OpenFile(a["witness"], os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	me := uint64(process + 1)
	parts := make([]part, tasks)
	began := time.Now()
	var group sync.WaitGroup
	for task := range tasks {
		group.Go(func() {
			p, who := &parts[task], uint64(process)<<32+uint64(task)+1
			for turn := uint64(0); turns > 0 && p.all < turns || turns == 0 && time.Since(began) < run; turn++ {
				name := 0
				if count := len(draws) / 2; count > 0 {
					at := 2 * (((process*1024+task)*257 + int(p.all)) % count)
					name = int(binary.LittleEndian.Uint16(draws[at:])) % len(names)
				}
				start := time.Now()
				since := uint64(start.UnixNano())
				release, err := c.Acquire(context.Background(), names[name])
				if err != nil {
					p.fail(err)
					continue
				}
				wait := time.Since(start)
				now := uint64(time.Now().UnixNano())
				var record [32]byte
				_, _ = witness.ReadAt(record[:], int64(name*32))
				var id [8]byte
				binary.LittleEndian.PutUint64(id[:], who)
				_, _ = witness.WriteAt(id[:], int64(name*32))
				if binary.LittleEndian.Uint64(record[0:]) != 0 {
					p.violations++
				}
				left, by := binary.LittleEndian.Uint64(record[16:]), binary.LittleEndian.Uint64(record[24:])
				if by != 0 && by != me && left >= since && left <= now {
					p.handover.record(time.Duration(now - left))
				}
				p.latency.record(wait)
				p.all++
				if turns > 0 || time.Since(began) < run {
					p.counted++
				}
				if work > 0 {
					time.Sleep(work)
				}
				_, _ = witness.ReadAt(record[:], int64(name*32))
				if binary.LittleEndian.Uint64(record[0:]) != who {
					p.violations++
				}
				binary.LittleEndian.PutUint64(record[0:], 0)
				binary.LittleEndian.PutUint64(record[8:], binary.LittleEndian.Uint64(record[8:])+1)
				binary.LittleEndian.PutUint64(record[16:], uint64(time.Now().UnixNano()))
				binary.LittleEndian.PutUint64(record[24:], me)
				_, _ = witness.WriteAt(record[:], int64(name*32))
				if err := release(); err != nil {
					p.fail(err)
				}
				if pause > 0 {
					time.Sleep(pause)
				}
			}
		})
	}
	group.Wait()
	outcome := total(parts)
	outcome.Elapsed = run.Nanoseconds()
	if turns > 0 {
		outcome.Elapsed = time.Since(began).Nanoseconds()
	}
	return outcome
}

func hold(c Contender, prefix string, count int) Outcome {
	began := time.Now()
	var group sync.WaitGroup
	failed := make(chan error, count)
	for first := range 256 {
		group.Go(func() {
			for name := first; name < count; name += 256 {
				if _, err := c.Acquire(context.Background(), fmt.Sprintf("%s:%d", prefix, name)); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	default:
	}
	return Outcome{Elapsed: time.Since(began).Nanoseconds(), Tasks: []uint64{}, Grants: uint64(count)}
}

func wake(c Contender, prefix string, count int) Outcome {
	var group sync.WaitGroup
	granted := make([]int64, count)
	for name := range count {
		group.Go(func() {
			release, err := c.Acquire(context.Background(), fmt.Sprintf("%s:%d", prefix, name))
			if err != nil {
				return
			}
			granted[name] = time.Now().UnixNano()
			_ = release()
		})
	}
	say("held")
	group.Wait()
	outcome := Outcome{Tasks: []uint64{}}
	for _, at := range granted {
		outcome.Last = max(outcome.Last, at)
		if at > 0 {
			outcome.Grants++
		}
	}
	return outcome
}

func main() {
	a := args{}
	for _, word := range os.Args[1:] {
		key, value, _ := strings.Cut(word, "=")
		a[key] = value
	}
	c, err := connect(a)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	prefix, tasks := a["prefix"], a.number("tasks")
	switch a["job"] {
	case "pairs":
		pairs(c, prefix+":warm", tasks, a.millis("warm_ms"))
		say("ready")
		end(pairs(c, prefix, tasks, a.millis("run_ms")))
	case "contend":
		pairs(c, prefix+":warm"+a["process"], min(tasks, 8), a.millis("warm_ms"))
		say("ready")
		end(contend(c, a))
	case "hold":
		pairs(c, prefix+":warm", 1, 0)
		say("ready")
		outcome := hold(c, prefix, tasks)
		say("held")
		end(outcome)
	case "wake":
		pairs(c, prefix+":warm", 1, 0)
		say("ready")
		end(wake(c, prefix, tasks))
	}
}
