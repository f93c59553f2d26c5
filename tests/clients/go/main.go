// Performs the operations of the client matrix with gomemcache.
//
// Usage: client CLIENT PROTOCOL SECURITY CA OPERATIONS HOST:PORT...
// tests/clients/README.md describes the arguments, the operations and the lines that are printed.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// A server that is well may be silent for seconds where the host takes its core away.
const limit = 60 * time.Second

func connect(security, ca, address string) *memcache.Client {
	client := memcache.New(address)
	client.Timeout = limit
	if security == "tls" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			panic(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots}}
		client.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		}
	}
	return client
}

// yes returns the result of an operation that has no value.
func yes(err error) string {
	switch {
	case err == nil:
		return "yes"
	case errors.Is(err, memcache.ErrNotStored), errors.Is(err, memcache.ErrCASConflict),
		errors.Is(err, memcache.ErrCacheMiss):
		return "no"
	}
	return failed(err)
}

// found returns the result of an operation with a value that may be absent.
func found(value string, err error) string {
	switch {
	case err == nil:
		return value
	case errors.Is(err, memcache.ErrCacheMiss):
		return "miss"
	}
	return failed(err)
}

func failed(err error) string {
	return "error " + strings.Join(strings.Fields(err.Error()), " ")
}

func bytes(text string) []byte {
	value, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return value
}

func integer(text string) int32 {
	value, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		panic(err)
	}
	return int32(value)
}

func item(given []string) *memcache.Item {
	made := &memcache.Item{Key: string(bytes(given[0])), Value: bytes(given[1])}
	if len(given) > 2 {
		made.Expiration = integer(given[2])
	}
	return made
}

func getAll(client *memcache.Client, keys []string) string {
	asked, seen := []string{}, map[string]bool{}
	for _, key := range keys {
		if !seen[key] {
			asked, seen[key] = append(asked, string(bytes(key))), true
		}
	}
	values, err := client.GetMulti(asked)
	if err != nil {
		return failed(err)
	}
	result := "values"
	for _, key := range asked {
		if item, ok := values[key]; ok {
			result += fmt.Sprintf(" %x=%x", key, item.Value)
		}
	}
	return result
}

func compareAndSwap(client *memcache.Client, given []string) string {
	read, err := client.Get(string(bytes(given[0])))
	if err != nil {
		return found("", err)
	}
	switch given[2] {
	case "set":
		err = client.Set(&memcache.Item{Key: read.Key, Value: []byte("other")})
	case "delete":
		err = client.Delete(read.Key)
	}
	if err != nil {
		return failed(err)
	}
	read.Value = bytes(given[1])
	return yes(client.CompareAndSwap(read))
}

func count(counted func(string, uint64) (uint64, error), given []string) string {
	by, err := strconv.ParseUint(given[1], 10, 64)
	if err != nil {
		panic(err)
	}
	value, err := counted(string(bytes(given[0])), by)
	return found(fmt.Sprintf("number %d", value), err)
}

func get(read *memcache.Item, err error) string {
	if err != nil {
		return found("", err)
	}
	return fmt.Sprintf("value %x", read.Value)
}

func perform(client *memcache.Client, operation string, given []string) string {
	key := ""
	if len(given) > 0 && operation != "stats" {
		key = string(bytes(given[0]))
	}
	switch operation {
	case "get":
		return get(client.Get(key))
	case "gat":
		return get(client.GetAndTouch(key, integer(given[1])))
	case "set":
		return yes(client.Set(item(given)))
	case "add":
		return yes(client.Add(item(given)))
	case "replace":
		return yes(client.Replace(item(given)))
	case "append":
		return yes(client.Append(item(given)))
	case "prepend":
		return yes(client.Prepend(item(given)))
	case "cas":
		return compareAndSwap(client, given)
	case "incr":
		return count(client.Increment, given)
	case "decr":
		return count(client.Decrement, given)
	case "delete":
		return yes(client.Delete(key))
	case "touch":
		return yes(client.Touch(key, integer(given[1])))
	case "mget":
		return getAll(client, given)
	case "mset":
		for at := 0; at < len(given); at += 2 {
			if err := client.Set(item(given[at : at+2])); err != nil {
				return failed(err)
			}
		}
		return "yes"
	case "flush_all":
		return yes(client.FlushAll())
	case "quit":
		return yes(client.Close())
	}
	return "unsupported"
}

func main() {
	security, ca, operations, addresses := os.Args[3], os.Args[4], os.Args[5], os.Args[6:]
	clients := []*memcache.Client{}
	for _, address := range addresses {
		clients = append(clients, connect(security, ca, address))
	}
	file, err := os.Open(operations)
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 8<<20)
	for number := 0; lines.Scan(); number++ {
		words := strings.Split(lines.Text(), "\t")
		if words[0] == "sleep" {
			time.Sleep(time.Duration(integer(words[1])) * time.Millisecond)
			continue
		}
		for server, client := range clients {
			fmt.Println(number, server, perform(client, words[0], words[1:]))
		}
	}
	if lines.Err() != nil {
		panic(lines.Err())
	}
}
