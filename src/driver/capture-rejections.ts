/** What every driver says to captures begun, ended or asked about out of turn. */

import { HoldfastError } from "../errors/index.js";
import type { Event, Stream } from "./driver.js";

/** `origin` is the stream whose capture is open. */
export function begunTwice(stream: Pick<Stream, "id">, origin: Pick<Stream, "id">): HoldfastError {
  const message = `beginCapture on stream #${stream.id} while the capture on stream #${origin.id} is open. End that one first.`;
  return new HoldfastError("CAPTURE_ORDER", message, { numbers: { stream: stream.id } });
}

export function notBegun(stream: Pick<Stream, "id">, origin: Pick<Stream, "id"> | undefined): HoldfastError {
  const there = origin ? `the open capture began on stream #${origin.id}` : "no capture is open";
  const message = `endCapture on stream #${stream.id}, but ${there}. End a capture on the stream that began it, once.`;
  return new HoldfastError("CAPTURE_ORDER", message, { numbers: { stream: stream.id } });
}

export function capturedEvent(event: Event): HoldfastError {
  const message = `Event #${event.id} was last recorded inside a capture that has ended, so it marks no work that runs. Record it again first.`;
  return new HoldfastError("CAPTURE_REJECTED", message, { numbers: { event: event.id } });
}
