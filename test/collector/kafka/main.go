// Command kafka is a Kafka broker for tests, in memory: kfake of the client library franz-go. It
// speaks Kafka's protocol, and is not Kafka itself. It makes a topic, listens until stdin ends,
// and prints each record that is produced as a line of JSON on stdout.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// partitions is the number of those of the topic.
const partitions = 3

// record is a line.
type record struct {
	Partition int32
	Key       []byte
	Value     []byte
}

func main() {
	address := flag.String("address", "127.0.0.1:9092", "`HOST:PORT` to listen on")
	topic := flag.String("topic", "", "`name` of the topic")
	flag.Parse()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test has ended, however it did
		cancel()
	}()
	if err := run(ctx, *address, *topic); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, address, topic string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	cluster, err := kfake.NewCluster(kfake.Ports(number), kfake.SeedTopics(partitions, topic))
	if err != nil {
		return err
	}
	defer cluster.Close()
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return err
	}
	defer consumer.Close()
	lines := json.NewEncoder(os.Stdout)
	for ctx.Err() == nil {
		fetches := consumer.PollFetches(ctx)
		for _, e := range fetches.Errors() {
			if ctx.Err() == nil {
				return e.Err
			}
		}
		for _, r := range fetches.Records() {
			if err := lines.Encode(record{r.Partition, r.Key, r.Value}); err != nil {
				return err
			}
		}
	}
	return nil
}
