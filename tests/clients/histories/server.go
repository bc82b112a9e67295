// The server under test as a child process: started, killed and started again on the same directory.

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Longer than any start takes; only a server that hangs meets it.
const readyWaitMax = 2 * time.Minute

type server struct {
	binary, directory string
	port              int
	child             *exec.Cmd
	ended             chan error // holds the child's end once it has come
}

func newServer(binary, scratch string) (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	return &server{binary: binary, directory: filepath.Join(scratch, "data"), port: port}, nil
}

// start starts the server and waits until a client gets in.
func (s *server) start() error {
	log, err := os.OpenFile(s.directory+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	s.child = exec.Command(s.binary, "serve", "--data", s.directory, "--listen", fmt.Sprintf("127.0.0.1:%d", s.port))
	s.child.Stdout, s.child.Stderr = log, log
	if err := s.child.Start(); err != nil {
		return err
	}
	s.ended = make(chan error, 1)
	go func(child *exec.Cmd, ended chan error) { ended <- child.Wait() }(s.child, s.ended)
	deadline := time.Now().Add(readyWaitMax)
	for {
		conn, err := s.connect(pgx.QueryExecModeSimpleProtocol)
		if err == nil {
			return conn.Close(context.Background())
		}
		select {
		case status := <-s.ended:
			s.ended <- status
			return fmt.Errorf("the server ended while it started (%v): %s", status, s.logEnd())
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %v: %w; see %s.log", readyWaitMax, err, s.directory)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// kill is kill -9; it returns when the process is gone.
func (s *server) kill() {
	// It fails only when the process has ended already, and then the clients have seen it.
	_ = s.child.Process.Kill()
	status := <-s.ended
	s.ended <- status
}

// logEnd is the last line of the server's log.
func (s *server) logEnd() string {
	text, err := os.ReadFile(s.directory + ".log")
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// connect opens a connection that sends its statements in the given way.
func (s *server) connect(mode pgx.QueryExecMode) (*pgx.Conn, error) {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	where := fmt.Sprintf("host=127.0.0.1 port=%d user=holdfast dbname=holdfast sslmode=disable", s.port)
	config, err := pgx.ParseConfig(where)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = mode
	return pgx.ConnectConfig(ctx, config)
}
