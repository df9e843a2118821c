/**
 * Horizontal fusion: merges independent calls into one launch. One engine serves all kinds of groups; a `Grouping` says which calls
 * can be merged and how. A call joins the first group that takes it and that it may move to.
 */

import { beat } from "../../units/index.js";
import { CriticalPath } from "../program/critical-path.js";
import { type Call, latestPhase, maxFusionDistance, type Node, type Program } from "../program/program.js";

/** Calls that become one launch. */
export interface Group<Item> {
  readonly node: Node;
  readonly items: readonly Item[];
  readonly calls: readonly Call[];
}

export interface Grouping<Item> {
  /** What `canJoin` and `merge` need to know about a call; undefined if the call stays alone. */
  itemOf(call: Call): Item | undefined;
  /** True if one launch can run the group's items and this one, and gains by it. */
  canJoin(group: Group<Item>, item: Item): boolean;
  /** The call that replaces a group of at least two. */
  merge(group: Group<Item>): Pick<Call, "work"> & Partial<Call>;
  /** The groups in the order in which an item tries them. Default: the latest first. */
  rank?(groups: readonly Group<Item>[], item: Item): readonly Group<Item>[];
  /** True if the group and the lone call may run at this anchor of `Program.fusionAnchor`. Default: true. */
  mayMove?(group: Group<Item>, joining: Group<Item>, anchor: Node): boolean;
  /** Called after an item has joined. */
  onJoin?(group: Group<Item>): void;
  /** Default: `maxFusionDistance`. */
  readonly maxDistance?: number;
  /** Calls that only consume items are first moved to where they are needed, so that they do not pin the items. Default: no. */
  readonly defersConsumers?: boolean;
  /** A call joins no group if that lengthens the critical path. Default: no. */
  readonly keepsCriticalPath?: boolean;
}

export function groupCalls<Item>(program: Program, grouping: Grouping<Item>): void {
  const { maxDistance = maxFusionDistance, defersConsumers = false, keepsCriticalPath = false } = grouping;
  if (defersConsumers) deferConsumers(program, (call) => grouping.itemOf(call) !== undefined);
  const path = keepsCriticalPath ? new CriticalPath(program) : undefined;
  const groups = new Map<Node, Group<Item>>();
  /** Groups within reach of the present node. */
  let open: Node[] = [];

  const join = (node: Node, item: Item): boolean => {
    open = open.filter((other) => program.distance(node, other) <= maxDistance);
    const near = open.flatMap((other) => groups.get(other) ?? []);
    const joining = { node, items: [item], calls: [node.call] };
    for (const group of grouping.rank?.(near, item) ?? near.toReversed()) {
      // A rematerialised call stays after the original one.
      if (isRematerialized(group.calls[0]) !== isRematerialized(node.call)) continue;
      if (!grouping.canJoin(group, item)) continue;
      // Two nodes can be fused although the second depends on the first; kernels of one launch must be independent.
      if (program.producersOf(node).has(group.node) || path?.wouldExtend(group.node, node)) continue;
      const anchor = program.fusionAnchor(group.node, node);
      if (!anchor || grouping.mayMove?.(group, joining, anchor) === false) continue;
      program.fuse(group.node, node, anchor);
      path?.fuse(group.node, node);
      const larger = { ...group, items: [...group.items, item], calls: [...group.calls, node.call] };
      groups.set(group.node, larger);
      grouping.onJoin?.(larger);
      return true;
    }
    return false;
  };

  for (const node of program.nodes) {
    beat();
    const item = grouping.itemOf(node.call);
    if (item === undefined || join(node, item)) continue;
    groups.set(node, { node, items: [item], calls: [node.call] });
    open.push(node);
  }
  for (const node of program.nodes) {
    const group = groups.get(node);
    if (group && group.items.length > 1) program.replace(node, mergedCall(group, grouping));
  }
}

const isRematerialized = (call: Call | undefined): boolean => call?.isRematerialized === true;

function mergedCall<Item>(group: Group<Item>, grouping: Grouping<Item>): Call {
  const op = [...new Set(group.calls.map((call) => call.op))].join(" + ");
  return { op, phase: latestPhase(group.calls), ...grouping.merge(group) };
}

/** Moves calls that depend on items to directly before their first consumers. */
function deferConsumers(program: Program, isItem: (call: Call) => boolean): void {
  /** The first of the nodes that were moved before a node. */
  const fronts = new Map<Node, Node>();
  for (const node of program.nodes.toReversed()) {
    if (isItem(node.call) || ![...program.producersOf(node)].some(({ call }) => isItem(call))) continue;
    const first = program.firstConsumerOf(node);
    if (!first) continue;
    program.moveBefore(node, fronts.get(first) ?? first);
    fronts.set(first, node);
  }
}
