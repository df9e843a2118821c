/**
 * Capture: the one door through which work becomes a graph. A synchronous function is run three times and trusted only
 * then:
 *
 *   1. observed: it shows what it touches and makes its lazy resources; no work is sent.
 *   2. run directly, for the result that counts.
 *   3. recorded: any allocation, synchronisation or look from the host is rejected by name before the driver is asked.
 *
 * Then the graph's nodes are counted, and one replay is compared with the direct run, bit for bit. Whatever happens, the
 * memory that the function writes is left as it was found: the first `replay()` is the first time that it counts. Only a
 * rehearsal, whose results nobody reads, is spared the comparison and the putting back.
 */

import type { Driver, Graph, Stream } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { bytes, formatSpan } from "../../units/index.js";
import { type Arena, poisonByte } from "../memory/arena.js";
import type { Budget } from "../memory/budget.js";
import type { PersistentMemory } from "../memory/persistent.js";
import { ownerOf } from "../memory/storage.js";
import type { Recorder } from "../observe/recorder.js";
import { runAll } from "../run-all.js";
import type { Transfer } from "../transfer/transfer.js";
import type { CapturePass, CaptureStateMachine } from "./capture-state.js";
import {
  requireSameChecksums,
  restoreSnapshot,
  type ScratchMemory,
  takeChecksums,
  takeSnapshot,
  uncovered,
} from "./checksum.js";
import { type AccessSet, noAccess, placesOf, type Work } from "./work.js";

export interface CaptureOptions {
  readonly driver: Driver;
  readonly stream: Stream;
  readonly arena: Arena;
  readonly persistent: PersistentMemory;
  readonly budget: Budget;
  readonly gate: CaptureStateMachine;
  readonly work: Work;
  readonly transfer: Transfer;
  readonly recorder: Recorder;
}

/** What a graph node costs the device, roughly; charged so that graphs stand among the holders. */
const bytesPerNode = 1024;

/** A verified graph. It owns every buffer it touches: they stay pinned until it is closed. */
export class CapturedGraph {
  readonly name: string;
  readonly graph: Graph;
  readonly #options: CaptureOptions;
  readonly #letGo: () => void;
  #isClosed = false;

  constructor(options: CaptureOptions, name: string, graph: Graph, letGo: () => void) {
    this.name = name;
    this.graph = graph;
    this.#options = options;
    this.#letGo = letGo;
  }

  /** Runs the whole graph once: one launch. */
  replay(): void {
    if (this.#isClosed) {
      throw new HoldfastError("CLOSED", `Graph "${this.name}" is closed; capture it again to replay it.`);
    }
    const { driver, stream, recorder, gate } = this.#options;
    gate.rejectInside("replay", this.name);
    driver.launchGraph(stream, this.graph);
    recorder.record("replay", this.name);
  }

  /** Ends the graph, then lets go of what it owned. Harmless when repeated. */
  close(): void {
    if (this.#isClosed) return;
    const { driver, stream, gate } = this.#options;
    gate.rejectInside("close of a graph", this.name);
    driver.synchronize(stream);
    this.#isClosed = true;
    this.#letGo();
  }
}

/**
 * Captures `body`; a capture that fails has left no trace but the lazy resources that the function made for itself. In a
 * rehearsal everything that it writes is scratch memory, and not even compared.
 */
export function captureGraph(
  options: CaptureOptions,
  name: string,
  body: () => void,
  purpose?: ScratchMemory | "rehearsal",
): CapturedGraph {
  const { driver, stream, gate, transfer, recorder, arena, persistent, budget } = options;
  const undo: (() => void)[] = [];
  gate.enter(name);
  try {
    const touched = runPass(options, name, "observing", body);
    // Owned from here on: a lazy resource made while observing must not die before it is recorded.
    for (const storage of touched.all) {
      const home = storage.kind === "step" ? arena : persistent;
      home.pin(storage, `graph "${name}"`);
      undo.push(() => home.unpin(storage));
    }
    const charge = budget.charge(
      "graph",
      bytes(bytesPerNode * Math.max(1, touched.pieces)),
      `graph "${name}"`,
    );
    undo.push(() => budget.release(charge));

    // Scratch memory need not be put back: it may be most of what there is.
    const scratch = purpose === "rehearsal" ? undefined : purpose;
    const results = purpose === "rehearsal" ? [] : uncovered(touched.written);
    const left = results.filter((storage) => ownerOf(storage) !== scratch?.storage);
    const compared = scratch ? [...left, scratch.storage] : left;
    const before = takeSnapshot(transfer, left);
    const putBack = () => restoreSnapshot(transfer, before);
    undo.push(putBack);
    // Both runs find the same NaN there, so one that read what it has not written would show.
    const poisonScratch = (): void => {
      if (scratch) driver.fill(stream, scratch.storage.span, poisonByte);
    };
    poisonScratch();
    requireSameWork(name, touched, runPass(options, name, "running", body, touched));
    const expected = takeChecksums(transfer, compared);
    putBack();

    const graph = record(driver, stream, () =>
      requireSameWork(name, touched, runPass(options, name, "recording", body, touched)),
    );
    undo.push(() => driver.destroyGraph(graph));
    requireNodes(name, graph, touched.pieces);
    driver.instantiate(graph);
    poisonScratch();
    driver.launchGraph(stream, graph);
    requireSameChecksums(name, expected, takeChecksums(transfer, compared), scratch);
    putBack();

    recorder.record("capture", name, 0, touched.pieces);
    undo.splice(undo.indexOf(putBack), 1);
    return new CapturedGraph(options, name, graph, () => runAll(undo.reverse()));
  } catch (error) {
    gate.leave();
    recorder.record("reject", `capture ${name}`);
    try {
      runAll(undo.reverse());
    } catch (failure) {
      throw new HoldfastError(
        "DRIVER_FAILED",
        `Capture "${name}" failed and could not be undone: ${(failure as Error).message} The state of what it writes is ` +
          "unknown; load a checkpoint.",
        { cause: error },
      );
    }
    throw error;
  } finally {
    gate.leave();
  }
}

/** Runs one pass of the function and tells what it touched. */
function runPass(
  { driver, work, gate }: CaptureOptions,
  name: string,
  pass: CapturePass,
  body: () => unknown,
  observed?: AccessSet,
): AccessSet {
  const touched = noAccess(observed);
  work.touched = touched;
  try {
    const result = gate.during(pass, body);
    if (result instanceof Promise) {
      result.catch(() => undefined);
      throw new HoldfastError(
        "CAPTURE_REJECTED",
        `The function of capture "${name}" is async: what it does after its first await would not be captured. ` +
          "Await before the capture.",
      );
    }
    requireJoined(name, touched);
    return touched;
  } catch (error) {
    // Work on a branch that nobody waits for must be over before what it writes is put back.
    for (const stream of pass === "running" ? touched.streams.keys() : []) driver.synchronize(stream);
    throw error;
  } finally {
    work.touched = undefined;
  }
}

/** The driver's capture, ended in every case, so that the stream is usable after a rejection. */
function record(driver: Driver, stream: Stream, body: () => void): Graph {
  driver.beginCapture(stream, "thread-local");
  try {
    body();
    return driver.endCapture(stream);
  } catch (error) {
    try {
      driver.destroyGraph(driver.endCapture(stream));
    } catch {
      // The driver has ended the capture by itself; the error that led here is the one to tell.
    }
    throw error;
  }
}

function requireJoined(name: string, { streams }: AccessSet): void {
  const [owing] = [...streams].find(([, { given, joined }]) => joined < given) ?? [];
  if (!owing) return;
  throw new HoldfastError(
    "CAPTURE_REJECTED",
    `The function of capture "${name}" ended with work on stream ${owing.id} that its own stream does not wait for. ` +
      "Join it with orderStreams() before the end.",
    { numbers: { capture: name, stream: owing.id } },
  );
}

/** A graph is good for later only if the function does the same work on the same memory each time. */
function requireSameWork(name: string, observed: AccessSet, now: AccessSet): void {
  const known = placesOf(observed.all);
  const stranger = [...now.all].find(({ span }) => !known.has(formatSpan(span)));
  if (!stranger && now.pieces === observed.pieces && placesOf(now.all).size === known.size) return;
  throw new HoldfastError(
    "CAPTURE_REJECTED",
    `The function of capture "${name}" does other work each time: ${observed.pieces} pieces on ${observed.all.size} ` +
      `storages at first, then ${now.pieces} on ${now.all.size}${stranger ? `, "${stranger.label}" among them` : ""}. ` +
      "A captured function must repeat itself.",
    { numbers: { capture: name, pieces: observed.pieces, piecesNow: now.pieces } },
  );
}

function requireNodes(name: string, { nodes }: Graph, pieces: number): void {
  const counted = nodes.kernel + nodes.copy + nodes.fill;
  if (nodes.memory === 0 && nodes.host === 0 && counted === pieces) return;
  throw new HoldfastError(
    "CAPTURE_NODES",
    `The graph of "${name}" has ${counted} nodes of work for ${pieces} recorded, ${nodes.memory} memory nodes and ` +
      `${nodes.host} host nodes. It must have just the work: memory nodes make the second launch fail, host nodes block.`,
    { numbers: { ...nodes, pieces } },
  );
}
