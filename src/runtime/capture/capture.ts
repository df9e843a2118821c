/**
 * Captures a synchronous function's work as a graph. The function runs three times:
 *
 *   1. observing: collects its access set and creates its lazy resources; submits no work.
 *   2. running: runs directly, for the reference result.
 *   3. recording: any allocation, synchronization or host access is rejected by name before the driver is called.
 *
 * Then the graph's nodes are counted, and one replay is compared with the direct run, bit for bit. In all cases the
 * memory that the function writes is restored, so a capture has no effect of its own. A capture for timing is neither run nor
 * compared: work that changes its own inputs would do something else the second time.
 *
 * Where collectives can't be recorded, the work between them becomes several graphs, and a replay launches graphs and collectives in turn.
 */

import type { Graph, Kernel, NodeCount } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { bytes, formatSpan, runAll } from "../../units/index.js";
import type { Arena } from "../memory/arena.js";
import { countWrite } from "../memory/persistent.js";
import { poisonByte } from "../memory/step-allocator.js";
import { ownerOf, type Storage } from "../memory/storage.js";
import type { Recorder } from "../observe/recorder.js";
import type { CapturePass, CaptureStateMachine } from "./capture-state.js";
import {
  requireSameChecksums,
  type ScratchMemory,
  takeChecksums,
  takeSnapshot,
  withoutCovered,
} from "./checksum.js";
import type { DeviceCopiesOptions } from "./device-copies.js";
import { type AccessSet, emptyAccessSet, spanKeys } from "./work.js";

export interface CaptureOptions extends DeviceCopiesOptions {
  readonly arena: Arena;
  readonly captureState: CaptureStateMachine;
  readonly recorder: Recorder;
  readonly isCollective: (kernel: Kernel) => boolean;
}

/** A graph, or a launch between graphs. */
export type CapturedPart = Graph | (() => void);

/** Rough device cost of a graph node, charged to the budget so that graphs appear among the holders. */
const bytesPerNode = 1024;

/** A verified graph, or several with collectives between them. It owns every buffer that it accesses: they stay pinned until it is closed. */
export class CapturedGraph {
  readonly name: string;
  readonly #parts: readonly CapturedPart[];
  readonly #options: CaptureOptions;
  /** A storage of each persistent region that it writes. */
  readonly #written: readonly Storage[];
  readonly #release: () => void;
  #isClosed = false;

  constructor(
    options: CaptureOptions,
    name: string,
    parts: readonly CapturedPart[],
    written: Iterable<Storage>,
    release: () => void,
  ) {
    this.name = name;
    this.#parts = parts;
    this.#options = options;
    this.#written = [...new Map([...written].map((storage) => [storage.home, storage])).values()];
    this.#release = release;
  }

  get nodes(): NodeCount {
    return nodesOf(this.#parts);
  }

  /** The launches of a replay: one for a whole graph. */
  get launches(): number {
    return this.#parts.length;
  }

  /** Runs all of the work once. */
  replay(): void {
    if (this.#isClosed) {
      throw new HoldfastError("CLOSED", `Graph "${this.name}" is closed. Capture it again to replay it.`);
    }
    const { recorder, captureState } = this.#options;
    captureState.rejectInside("replay", this.name);
    for (const storage of this.#written) countWrite(storage);
    launchAll(this.#options, this.#parts);
    recorder.record("replay", this.name);
  }

  /** Destroys the graph, then unpins its buffers. Idempotent. */
  close(): void {
    if (this.#isClosed) return;
    const { driver, stream, captureState } = this.#options;
    captureState.rejectInside("close of a graph", this.name);
    driver.synchronize(stream);
    this.#isClosed = true;
    this.#release();
  }
}

/**
 * Captures `body`. A failed capture has no effect except the function's lazy resources. With purpose "timing", nothing runs
 * before the first replay. With `isSplit`, collectives run between graphs; the body then uses the runtime's stream alone.
 */
export function captureGraph(
  options: CaptureOptions,
  name: string,
  body: () => void,
  purpose?: ScratchMemory | "timing",
  isSplit = false,
): CapturedGraph {
  const { driver, stream, captureState, recorder, arena, persistent, budget } = options;
  const undo: (() => void)[] = [];
  captureState.enter(name);
  try {
    const accesses = runPass(options, name, "observing", body);
    // Pinned from here on: a lazy resource created while observing must live until it is recorded.
    for (const storage of accesses.all) {
      const home = storage.kind === "step" ? arena : persistent;
      home.pin(storage, `graph "${name}"`);
      undo.push(() => home.unpin(storage));
    }
    const charge = budget.charge(
      "graph",
      bytes(bytesPerNode * Math.max(1, accesses.commands)),
      `graph "${name}"`,
    );
    undo.push(() => budget.release(charge));

    const isRun = purpose !== "timing";
    // Scratch memory is not restored: it may be most of the memory.
    const scratch = isRun ? purpose : undefined;
    const results = isRun ? withoutCovered(accesses.written) : [];
    const outputs = results.filter((storage) => ownerOf(storage) !== scratch?.storage);
    const compared = scratch ? [...outputs, scratch.storage] : outputs;
    const before = takeSnapshot(options, outputs);
    undo.push(before.release, before.restore);
    // Both runs start from NaN there, so a read of unwritten scratch shows up as a difference.
    const poisonScratch = (): void => {
      if (scratch) driver.fill(stream, scratch.storage.span, poisonByte);
    };
    poisonScratch();
    if (isRun) requireSameWork(name, accesses, runPass(options, name, "running", body, accesses));
    const expected = takeChecksums(options, compared);
    before.restore();

    const parts = record(options, isSplit, () =>
      requireSameWork(name, accesses, runPass(options, name, "recording", body, accesses)),
    );
    undo.push(() => destroyAll(options, parts));
    requireNodes(name, nodesOf(parts), accesses.commands - parts.filter(isLaunch).length);
    for (const part of parts) if (!isLaunch(part)) driver.instantiate(part);
    poisonScratch();
    for (const storage of isRun ? accesses.written : []) countWrite(storage);
    if (isRun) launchAll(options, parts);
    requireSameChecksums(name, expected, takeChecksums(options, compared), scratch);
    before.restore();
    before.release();

    recorder.record("capture", name, 0, accesses.commands);
    undo.splice(undo.indexOf(before.release), 2);
    return new CapturedGraph(options, name, parts, accesses.written, () => runAll(undo.reverse()));
  } catch (error) {
    captureState.leave();
    recorder.record("reject", `capture ${name}`);
    try {
      runAll(undo.reverse());
    } catch (failure) {
      // Then no collective ends, on any rank, and nothing that was computed with them is of use.
      if (failure instanceof HoldfastError && failure.code === "RANK_LOST") throw failure;
      throw new HoldfastError(
        "DRIVER_FAILED",
        `Capture "${name}" failed and could not be undone: ${(failure as Error).message} The memory that it writes has undefined ` +
          "contents now. Load a checkpoint.",
        { cause: error },
      );
    }
    throw error;
  } finally {
    captureState.leave();
  }
}

/** Runs one pass of the function and returns its access set. */
function runPass(
  { driver, work, captureState }: CaptureOptions,
  name: string,
  pass: CapturePass,
  body: () => unknown,
  observed?: AccessSet,
): AccessSet {
  const accesses = emptyAccessSet(observed);
  work.accesses = accesses;
  try {
    const result = captureState.during(pass, body);
    if (result instanceof Promise) {
      result.catch(() => undefined);
      throw new HoldfastError(
        "CAPTURE_REJECTED",
        `The function of capture "${name}" is async: work after its first await would not be captured. ` +
          "Await before the capture.",
      );
    }
    requireJoined(name, accesses);
    return accesses;
  } catch (error) {
    // Work on side streams must complete before the memory it writes is restored.
    for (const stream of pass === "running" ? accesses.streams.keys() : []) driver.synchronize(stream);
    throw error;
  } finally {
    work.accesses = undefined;
  }
}

const isLaunch = (part: CapturedPart): part is () => void => typeof part === "function";

/** The driver's capture. It is always ended, so that the stream is usable after an error. */
function record(options: CaptureOptions, isSplit: boolean, body: () => void): readonly CapturedPart[] {
  const { driver, stream, work, isCollective } = options;
  const parts: CapturedPart[] = [];
  const endGraph = (): void => {
    const graph = driver.endCapture(stream);
    // Between two collectives there may be no work.
    if (isSplit && Object.values(graph.nodes).every((count) => count === 0)) driver.destroyGraph(graph);
    else parts.push(graph);
  };
  driver.beginCapture(stream, "thread-local");
  try {
    if (isSplit)
      work.apart = {
        includes: isCollective,
        add(launch) {
          endGraph();
          parts.push(launch);
          driver.beginCapture(stream, "thread-local");
        },
      };
    body();
    endGraph();
    return parts;
  } catch (error) {
    destroyAll(options, parts);
    try {
      driver.destroyGraph(driver.endCapture(stream));
    } catch {
      // The driver has already ended the capture; the original error is the one to report.
    }
    throw error;
  } finally {
    work.apart = undefined;
  }
}

function launchAll({ driver, stream }: CaptureOptions, parts: readonly CapturedPart[]): void {
  for (const part of parts) {
    if (isLaunch(part)) part();
    else driver.launchGraph(stream, part);
  }
}

function destroyAll({ driver }: CaptureOptions, parts: readonly CapturedPart[]): void {
  for (const part of parts) if (!isLaunch(part)) driver.destroyGraph(part);
}

function nodesOf(parts: readonly CapturedPart[]): NodeCount {
  const sum = { kernel: 0, copy: 0, fill: 0, memory: 0, host: 0 };
  for (const part of parts) {
    if (isLaunch(part)) continue;
    for (const kind of Object.keys(sum) as (keyof NodeCount)[]) sum[kind] += part.nodes[kind];
  }
  return sum;
}

function requireJoined(name: string, { streams }: AccessSet): void {
  const [unjoined] = [...streams].find(([, { issued, awaited }]) => awaited < issued) ?? [];
  if (!unjoined) return;
  throw new HoldfastError(
    "CAPTURE_REJECTED",
    `The function of capture "${name}" ended while work on stream ${unjoined.id} was not joined to the captured stream. ` +
      "Join it with orderStreams() before the end.",
    { numbers: { capture: name, stream: unjoined.id } },
  );
}

/** A graph is valid only if the function does the same work on the same memory every time. */
function requireSameWork(name: string, observed: AccessSet, now: AccessSet): void {
  const observedRanges = spanKeys(observed.all);
  const newStorage = [...now.all].find(({ span }) => !observedRanges.has(formatSpan(span)));
  if (!newStorage && now.commands === observed.commands && spanKeys(now.all).size === observedRanges.size)
    return;
  throw new HoldfastError(
    "CAPTURE_REJECTED",
    `The function of capture "${name}" does different work each time: ${observed.commands} commands on ${observed.all.size} ` +
      `storages at first, then ${now.commands} on ${now.all.size}${newStorage ? `, including "${newStorage.label}"` : ""}. ` +
      "A captured function must do the same work every time.",
    { numbers: { capture: name, commands: observed.commands, commandsNow: now.commands } },
  );
}

function requireNodes(name: string, nodes: NodeCount, commands: number): void {
  const counted = nodes.kernel + nodes.copy + nodes.fill;
  if (nodes.memory === 0 && nodes.host === 0 && counted === commands) return;
  throw new HoldfastError(
    "CAPTURE_NODES",
    `The graph of "${name}" has ${counted} work nodes for ${commands} recorded commands, ${nodes.memory} memory nodes and ` +
      `${nodes.host} host nodes. Only work nodes are allowed: memory nodes make the second launch fail, and host nodes block. ` +
      "Move allocations and host callbacks out of the captured function.",
    { numbers: { ...nodes, commands } },
  );
}
