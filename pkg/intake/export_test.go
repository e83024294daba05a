package intake

import (
	"net/http"

	"golang.org/x/net/http2"

	"github.com/eventd/eventd/pkg/occurrence"
)

// Unnamed tells whether a replica that has lost the answer to a POST of this body
// takes it for one whose name is generated.
func Unnamed(api occurrence.API, mediaType string, body []byte) bool {
	p := &passing{method: http.MethodPost, header: http.Header{"Content-Type": {mediaType}}, body: body, kind: api.GroupVersion().WithKind("Event")}
	return p.unnamed()
}

// ReplaceConnectionsAfter has the connections to the present leader take so many
// requests each.
func (r *Relay) ReplaceConnectionsAfter(requests int) {
	c := r.connections()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lifetime = requests
}

// NewConnection makes a connection to the leader, has something happen to it before
// it is used, and leaves it where requests look for one.
func (r *Relay) NewConnection(happens func(*http2.ClientConn)) {
	c := r.connections()
	c.mu.Lock()
	d, _ := c.dialed()
	c.mu.Unlock()
	<-d.done
	c.mu.Lock()
	conn := c.conns[0]
	c.mu.Unlock()
	happens(conn.ClientConn)
	c.MarkDead(conn.ClientConn) // by the transport, before it was put there
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = []*connection{conn}
}
