/**
 * Launches kernels of rows together that don't wait for each other, on a GPU: a small one takes little more than its launch, so
 * beside another one it takes next to nothing. Conversions of weights go along with what is made early, and the record of a
 * step's loss with the end of its gradients' norm. Each value has the bits that it has alone.
 */

import { factsOf } from "../../ir/index.js";
import { canComboRows } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { beat } from "../../units/index.js";
import { CriticalPath } from "../program/critical-path.js";
import { dependsDirectly, maxFusionDistance, type Node, Order } from "../program/dependency-graph.js";
import { accessesOf, type Call, latestPhase, type RowCall } from "../program/program.js";
import { bytesOf } from "../report/call-table.js";

/** How many kernels a launch runs. */
const maxKernels = 8;

/**
 * So many bytes for each multiprocessor take several times as long to move as a launch takes to begin. Two kernels that move as
 * much would only wait for each other.
 */
const largeBytes = 128 * 1024;

/** So many elements of rows for each multiprocessor: what reduces more has use for all of its registers. */
const fewElements = 256;

/** Of a longer row a thread holds so much that a kernel which only moves elements would have too few threads beside it. */
const shortRow = 256;

/** What a move in the program may hold longer than without it. */
const maxHeldBytes = 4 * 2 ** 20;

interface Group {
  readonly rows: readonly RowCall[];
  readonly calls: readonly Call[];
  /** What they move. */
  readonly bytes: number;
  /** Does one of them keep the device busy by itself? */
  readonly isLarge: boolean;
  /** Does one of them take many registers? All that a launch runs have as many. */
  readonly holdsRows: boolean;
}

export function fuseHorizontally(runtime: Runtime, calls: readonly Call[]): readonly Call[] {
  if (runtime.device.kind !== "cuda") return calls;
  const order = new Order();
  const nodes = calls.map((call) => order.add(call).node);
  const chains = new CriticalPath(nodes);
  const groups = new Map<Node, Group>();
  /** Those that later ones can still reach. */
  let open: Node[] = [];

  /**
   * Joins the group before it that takes it and leaves the device most idle, the nearest of such. One that is a group already comes
   * first, if they are not large together: one that is alone may have a place to go to itself, which with this one it would not.
   */
  const join = (node: Node, own: Group): boolean => {
    open = open.filter(({ position }) => node.position - position <= maxFusionDistance);
    const near = open.flatMap((other) => {
      const group = groups.get(other);
      return group ? [{ other, group }] : [];
    });
    const isSmallCombo = ({ group: { calls, bytes } }: (typeof near)[number]): number =>
      Number(calls.length > 1 && bytes + own.bytes <= largeBytes * runtime.device.parallelism);
    near.sort(
      (a, b) =>
        isSmallCombo(b) - isSmallCombo(a) ||
        a.group.bytes - b.group.bytes ||
        b.other.position - a.other.position,
    );
    for (const { other, group } of near) {
      const rows = [...group.rows, ...own.rows];
      if (rows.length > maxKernels || !areFit(group, own) || !canComboRows(runtime, rows)) continue;
      // Two nodes may stand as one though the second waits for the first; kernels of one launch may not.
      if (dependsDirectly(node, other) || chains.wouldExtend(other, node)) continue;
      const place = order.fusionPosition(other, node);
      if (place === undefined || heldBytes([other, group], [node, own], place) > maxHeldBytes) continue;
      order.join(other, node, place);
      chains.join(other, node);
      groups.set(other, {
        ...{ rows, calls: [...group.calls, ...own.calls], bytes: group.bytes + own.bytes },
        ...{ isLarge: group.isLarge || own.isLarge, holdsRows: group.holdsRows || own.holdsRows },
      });
      return true;
    }
    return false;
  };

  for (const node of nodes) {
    beat();
    const own = groupOf(node.call, runtime.device.parallelism);
    if (!own || join(node, own)) continue;
    groups.set(node, own);
    open.push(node);
  }
  return order.nodes.map((node) => {
    const group = groups.get(node);
    return group && group.calls.length > 1 ? callOf(group) : node.call;
  });
}

/** A kernel that may be launched with others. */
function groupOf(call: Call, parallelism: number): Group | undefined {
  const { work, isRematerialized: isRecomputed } = call;
  if (work.kind !== "row" || isRecomputed) return undefined;
  const { isElementwise } = factsOf(work.kernel);
  const { elements, row } = work.iteration;
  if (!isElementwise && elements > fewElements * parallelism) return undefined;
  const { read, written } = bytesOf(call);
  const bytes = read + written;
  return {
    ...{ rows: [work], calls: [call], bytes, isLarge: bytes > largeBytes * parallelism },
    holdsRows: !isElementwise && row.size > shortRow,
  };
}

/** Of two large ones each would wait for the other; and a large one has use for as many threads as there can be. */
function areFit(one: Group, other: Group): boolean {
  if (one.isLarge && other.isLarge) return false;
  return !(one.isLarge || other.isLarge) || !(one.holdsRows || other.holdsRows);
}

/** What lives longer with both at one place: results of what is made earlier, and operands of what is made later. */
function heldBytes(earlier: [Node, Group], later: [Node, Group], place: number): number {
  const bytesAt = ([node, { calls }]: [Node, Group]): number => {
    if (place === node.position) return 0;
    const accesses = calls.flatMap(accessesOf).filter(({ slice }) => !slice.buffer.storage);
    const held = accesses.filter((access) => (place < node.position ? access.writes : access.reads));
    return [...new Set(held.map(({ slice }) => slice.buffer))].reduce((sum, { bytes }) => sum + bytes, 0);
  };
  return bytesAt(earlier) + bytesAt(later);
}

function callOf({ rows, calls }: Group): Call {
  const op = [...new Set(calls.map((call) => call.op))].join(" + ");
  return { op, phase: latestPhase(calls), work: { kind: "combo", rows } };
}
