// link_p2p: blocking point-to-point messages over another link, as what ASAP's one-sided writes are
// compared with. A message is the puts of a port to one window and the flag that ends them.
//
// What "blocking" means here:
//   1. The first put of a message sends a request and waits until the receiver grants it. Nothing
//      of the message is written before.
//   2. The receiver grants when it is free: when one of its agents looks at its window
//      (Port::window), or while it waits in a message of its own. A receiver that computes between
//      two looks keeps the sender waiting for so long.
//   3. An agent that granted on a look is in the receive: it waits until the message is complete
//      and acknowledges. One that granted while it sends itself acknowledges at a later turn of
//      its wait, or at its next look.
//   4. put_flag returns when the acknowledgement is there.
// A message between agents of one device needs no handshake.
//
// It cannot deadlock as long as every device looks at its window or waits in a message: a sender
// that waits serves its own device's requests meanwhile, and a receiver in a receive waits only for
// a sender that has been granted. It needs a thread per device; one thread that steps several
// devices waits for itself. When a peer dies a sender waits until its process is ended; a receive
// gives up after a while and acknowledges later.
#pragma once

#include <memory>

#include "asap/transport/link.h"

namespace asap {

// At any time one port of a device sends to a given peer.
std::unique_ptr<Link> make_link_p2p(const Geometry& geometry, std::unique_ptr<Link> inner);

}  // namespace asap
