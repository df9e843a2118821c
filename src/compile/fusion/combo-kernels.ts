/**
 * Combo kernels: independent row kernels in one launch, on a GPU. A small kernel takes little more than its launch, so in the launch of
 * another one it is almost free. Each value keeps the bits that it has alone.
 */

import { factsOf } from "../../ir/index.js";
import { canComboRows, capabilitiesOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { comboLimits, maxComboKernels, maxHeldBytes } from "../cost-model.js";
import {
  accessesOf,
  type Buffer,
  type Call,
  type Node,
  type Program,
  type RowCall,
} from "../program/program.js";
import { bytesOf } from "../program/traffic.js";
import { isCollective } from "../ranks.js";
import { type Group, groupCalls } from "./group-calls.js";

interface ComboItem {
  readonly work: RowCall;
  /** Its memory traffic. */
  readonly bytes: number;
  /** True if it keeps the device busy by itself. */
  readonly isLarge: boolean;
  /** True if it needs many registers: all kernels of a launch are given as many. */
  readonly holdsRows: boolean;
}

export function fuseHorizontally(runtime: Runtime, program: Program): void {
  const { device } = runtime;
  if (!capabilitiesOf(runtime).combinesKernels) return;
  const received = receivedBuffers(runtime, program);
  const { launchTraffic, largeBytes, maxReducedElements, maxHeldRow } = comboLimits(device);

  const itemOf = (call: Call): ComboItem | undefined => {
    const { work, isRematerialized } = call;
    if (work.kind !== "row" || isRematerialized) return undefined;
    // The other kernels would wait for the other ranks.
    if (accessesOf(call).some(({ slice }) => received.has(slice.buffer))) return undefined;
    const { isElementwise } = factsOf(work.kernel);
    const { elements, row } = work.iteration;
    if (!isElementwise && elements > maxReducedElements) return undefined;
    const { read, written } = bytesOf(call);
    const bytes = read + written;
    return { work, bytes, isLarge: bytes > largeBytes, holdsRows: !isElementwise && row.size > maxHeldRow };
  };
  /**
   * The cost of adding an item to a group: the added time of its launch, as bytes of memory traffic. Traffic below `launchTraffic` is free,
   * because a launch takes that long anyway. Joining a lone kernel costs half a launch more: that kernel could still join another group.
   */
  const costOf = ({ items }: Group<ComboItem>, item: ComboItem): number => {
    const traffic = trafficOf(items);
    const added = Math.max(0, traffic + item.bytes - Math.max(traffic, launchTraffic));
    return items.length > 1 ? added : added + launchTraffic / 2;
  };

  groupCalls<ComboItem>(program, {
    keepsCriticalPath: true,
    itemOf,
    canJoin: ({ items }, item) =>
      items.length < maxComboKernels &&
      canShareLaunch(items, item) &&
      canComboRows(
        runtime,
        [...items, item].map(({ work }) => work),
      ),
    /** The cheapest group; ties go to the smallest memory traffic, then to the nearest. */
    rank: (groups, item) =>
      groups.toSorted(
        (a, b) =>
          costOf(a, item) - costOf(b, item) ||
          trafficOf(a.items) - trafficOf(b.items) ||
          (a.node.isBefore(b.node) ? 1 : -1),
      ),
    mayMove: (group, joining, anchor) => heldBytes([group, joining], anchor) <= maxHeldBytes,
    merge: ({ items }) => ({ work: { kind: "combo", rows: items.map(({ work }) => work) } }),
  });
}

/** What collectives write. */
function receivedBuffers(runtime: Runtime, program: Program): ReadonlySet<Buffer> {
  const writers = program.nodes.filter(({ call }) => isCollective(runtime, call));
  return new Set(
    writers.flatMap(({ accesses }) =>
      accesses.flatMap(({ slice, writes }) => (writes ? [slice.buffer] : [])),
    ),
  );
}

const trafficOf = (items: readonly ComboItem[]): number => items.reduce((sum, { bytes }) => sum + bytes, 0);

/** Two large kernels would only wait for each other; and a large one needs the threads that a kernel with many registers takes away. */
function canShareLaunch(items: readonly ComboItem[], item: ComboItem): boolean {
  const isLarge = items.some((other) => other.isLarge);
  if (isLarge && item.isLarge) return false;
  const holdsRows = item.holdsRows || items.some((other) => other.holdsRows);
  return !(isLarge || item.isLarge) || !holdsRows;
}

/** The bytes that live longer if all run at one anchor: results of calls that move up, operands of calls that move down. */
function heldBytes(groups: readonly Group<ComboItem>[], anchor: Node): number {
  return groups.reduce((sum, { node, calls }) => {
    if (anchor === node) return sum;
    const accesses = calls.flatMap(accessesOf).filter(({ slice }) => !slice.buffer.storage);
    const held = accesses.filter((access) => (anchor.isBefore(node) ? access.writes : access.reads));
    const buffers = new Set(held.map(({ slice }) => slice.buffer));
    return [...buffers].reduce((total, { bytes }) => total + bytes, sum);
  }, 0);
}
