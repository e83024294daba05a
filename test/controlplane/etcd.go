package main

import (
	"context"
	"net/url"
	"os"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// walSegmentSize is what etcd reserves on disk for its log, twice. Its own 64 MB
// would be 128 MB of memory for each control plane where /tmp is one.
const walSegmentSize = 8 << 20

// etcdServer is the one member of the cluster's etcd.
type etcdServer struct {
	etcd      *embed.Etcd
	logLevel  zap.AtomicLevel
	clientURL string
}

// startEtcd starts etcd in dir and returns once it serves. Clients need a
// certificate: whoever can write to etcd is above RBAC, and 127.0.0.1 is shared
// by all users of a machine.
func startEtcd(ctx context.Context, dir string, id identity) (*etcdServer, error) {
	wal.SegmentSizeBytes = walSegmentSize
	s := &etcdServer{logLevel: zap.NewAtomicLevelAt(zapcore.ErrorLevel)}
	config := embed.NewConfig()
	config.Dir = dir
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(stderrLogger(s.logLevel))
	// What fsync guards against is a crash of the machine, and nobody's data
	// is at stake here. Without it a start is faster, and a busy disk (a CI
	// machine's) does not make requests fail with timeouts.
	config.UnsafeNoFsync = true
	// The JSON gateway has no user here, and would dial the advertised address.
	config.EnableGRPCGateway = false

	tls := transport.TLSInfo{
		CertFile:       id.cert(etcdServerCert),
		KeyFile:        id.key(etcdServerCert),
		TrustedCAFile:  id.cert(etcdCA),
		ClientCertAuth: true,
	}
	config.ClientTLSInfo, config.PeerTLSInfo = tls, tls
	// A single member never dials its own peer address, so a free port will
	// do, and the address that is recorded in the data may say port 0 for good.
	free := []url.URL{{Scheme: "https", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.AdvertiseClientUrls = free, free
	config.ListenPeerUrls, config.AdvertisePeerUrls = free, free
	config.InitialCluster = config.InitialClusterFromName(config.Name)

	var err error
	if s.etcd, err = embed.StartEtcd(config); err != nil {
		return nil, err
	}
	s.clientURL = "https://" + s.etcd.Clients[0].Addr().String()
	select {
	case <-s.etcd.Server.ReadyNotify():
		return s, nil
	case err = <-s.etcd.Err():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.stop()
	return nil, err
}

func stderrLogger(level zapcore.LevelEnabler) *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(os.Stderr), level)).Named("etcd")
}

// err delivers the error that ended etcd.
func (s *etcdServer) err() <-chan error { return s.etcd.Err() }

func (s *etcdServer) stop() {
	// The closing of its own listeners is an error to etcd, with a stack.
	s.logLevel.SetLevel(zapcore.FatalLevel)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.etcd.Close()
	}()
	waitStopped(done, "etcd")
}
