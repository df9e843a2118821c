/**
 * `faulty` wraps any driver and, following a script, makes calls fail, slow down, stall or run late. With a fake clock,
 * time passes only on that clock. Without one, a slow call really blocks its thread, as a hung driver does.
 */

import { HoldfastError } from "../../errors/index.js";
import { type FakeClock, formatDuration, sleepSync } from "../../units/index.js";
import type { Driver, DriverCall, Event, Stream } from "../driver.js";
import { interceptCalls } from "../intercept-calls.js";
import { LateWork } from "./late-work.js";
import { type Effect, parseFault } from "./script.js";

/** On a fake clock even a stall must end: after a day, with an error. */
const stallMs = 24 * 60 * 60 * 1000;

/** Options of `faulty`. */
export interface FaultyOptions {
  readonly clock?: FakeClock;
}

/**
 * Wraps a driver so that calls fail, slow down, stall or run late, as the sentences of a script say.
 *
 * @example
 * ```ts
 * import { bytes, faulty, openCpuDriver } from "holdfast/internals";
 * const driver = faulty(openCpuDriver(), ["the 1st commit fails with out-of-memory"]);
 * const range = driver.reserve(bytes(65536));
 * try {
 *   driver.commit(range);
 * } catch (error) {
 *   console.log((error as Error).message); // → commit failed, as the script says: the 1st commit fails with out-of-memory
 * }
 * driver.close();
 * ```
 */
export function faulty(inner: Driver, script: readonly string[], options: FaultyOptions = {}): Driver {
  const faults = script.map((sentence) => ({ ...parseFault(sentence), seen: 0 }));
  const late = new LateWork();
  let isCapturing = false;

  function strike(call: DriverCall): Effect | undefined {
    let effect: Effect | undefined;
    for (const fault of faults) {
      if (!fault.calls.includes(call)) continue;
      fault.seen += 1;
      if (!fault.strikes(fault.seen)) continue;
      if (fault.effect.type === "fails") {
        throw new HoldfastError(fault.effect.code, `${call} failed, as the script says: ${fault.sentence}`);
      }
      effect = fault.effect;
    }
    return effect;
  }

  function pass(elapsedMs: number): void {
    if (options.clock) options.clock.advance(elapsedMs);
    else sleepSync(elapsedMs);
  }

  return interceptCalls(inner, (call, args, proceed) => {
    const effect = strike(call);
    if (effect?.type === "takes") pass(effect.elapsedMs);
    if (effect?.type === "stalls") {
      pass(stallMs);
      throw new HoldfastError(
        "STALLED",
        `${call} did not return for ${formatDuration(stallMs)}, as the script says.`,
      );
    }

    switch (call) {
      case "copyToDevice":
      case "copyToHost":
      case "copyOnDevice":
      case "fill":
      case "launch":
      case "launchGraph":
      case "waitEvent":
      case "recordEvent": {
        const event = args[call === "recordEvent" ? 0 : 1] as Event;
        const stream = args[call === "recordEvent" ? 1 : 0] as Stream;
        const waitsForLate = call === "waitEvent" && late.isPending(event);
        // Captured work does not run, so it cannot run late.
        if (!isCapturing && (effect?.type === "late" || late.hasLateWork(stream) || waitsForLate)) {
          const argsCopy = args.map(copied);
          const method = inner[call] as (...args: unknown[]) => void;
          const takesEvent = call === "waitEvent" || call === "recordEvent";
          late.add(stream, () => method.apply(inner, argsCopy), takesEvent ? { call, event } : undefined);
          if (call === "recordEvent") late.recordEvent(event, stream);
          return undefined;
        }
        if (call === "recordEvent") late.recordEvent(event, stream);
        return proceed();
      }
      case "beginCapture":
        late.performStream(args[0] as Stream);
        isCapturing = true;
        return proceed();
      case "endCapture":
        isCapturing = false;
        return proceed();
      case "destroyEvent":
        // Legal while work still waits for the event: the driver destroys it after that work.
        return late.afterUses(args[0] as Event, proceed);
      case "isReached":
        return late.isPending(args[0] as Event) ? false : proceed();
      case "synchronizeEvent":
        late.performEvent(args[0] as Event);
        return proceed();
      case "synchronize":
      case "destroyStream":
        late.performStream(args[0] as Stream);
        return proceed();
      default:
        return proceed();
    }
  });
}

/** A driver copies its arguments during the call, so delayed work must copy them too. Handles keep their identity. */
function copied(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(copied);
  if (typeof value !== "object" || value === null || "type" in value) return value;
  return Object.fromEntries(Object.entries(value).map(([key, field]) => [key, copied(field)]));
}
