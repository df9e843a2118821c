/** The errors that every driver throws when a capture call comes in the wrong order. */

import { HoldfastError } from "../errors/index.js";
import type { Event, Stream } from "./driver.js";

/** `origin` is the stream whose capture is open. */
export function captureAlreadyOpen(stream: Pick<Stream, "id">, origin: Pick<Stream, "id">): HoldfastError {
  const message = `beginCapture on stream #${stream.id} failed: the capture on stream #${origin.id} is still open. Call endCapture on it first.`;
  return new HoldfastError("CAPTURE_ORDER", message, { numbers: { stream: stream.id } });
}

export function captureNotOpen(
  stream: Pick<Stream, "id">,
  origin: Pick<Stream, "id"> | undefined,
): HoldfastError {
  const state = origin ? `the open capture began on stream #${origin.id}` : "no capture is open";
  const message = `endCapture on stream #${stream.id} failed: ${state}. Call endCapture once, on the stream that beginCapture was called with.`;
  return new HoldfastError("CAPTURE_ORDER", message, { numbers: { stream: stream.id } });
}

export function capturedEvent(event: Event): HoldfastError {
  const message = `Event #${event.id} was last recorded inside a capture that has ended, so no work will complete it. Record it again before you wait for it.`;
  return new HoldfastError("CAPTURE_REJECTED", message, { numbers: { event: event.id } });
}
