/**
 * Grouped scatters, such as the gradients of embeddings. A lone scatter to a table of a few megabytes leaves most of a GPU idle. In a group,
 * the blocks that the GPU holds at once are shared by all tables, so that each index is read by fewer blocks. Each keeps the bits that it has
 * alone.
 */

import { backendOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { maxHeldBytes } from "../cost-model.js";
import { accessesOf, type Node, type Program, type ScatterCall } from "../program/program.js";
import { type Group, groupCalls } from "./group-calls.js";

export function groupScatters(runtime: Runtime, program: Program): void {
  const backend = backendOf(runtime);
  const canGroup = (scatters: readonly ScatterCall[]): boolean =>
    backend.canGroupScatters(scatters.map(({ shape }) => shape));
  groupCalls<ScatterCall>(program, {
    defersConsumers: true,
    itemOf: ({ work }) => (work.kind === "scatter" && canGroup([work]) ? work : undefined),
    canJoin: ({ items }, scatter) => canGroup([...items, scatter]),
    mayMove: (group, joining, anchor) => heldBytes(program, [group, joining], anchor) <= maxHeldBytes,
    merge: ({ items }) => ({
      work: {
        kind: "grouped-scatter",
        scatters: items.map((scatter) => ({ ...scatter, scratch: [] })),
        scratch: backend
          .scatterScratchBytes(items.map(({ shape }) => shape))
          .map((size) => ({ buffer: program.makeBuffer(size, "scatter scratch"), offset: 0, size })),
      },
    }),
  });
}

/** The bytes of step memory that live longer if all run at one anchor: results of calls that move up, operands of calls that move down. */
function heldBytes(program: Program, groups: readonly Group<ScatterCall>[], anchor: Node): number {
  const held = groups.flatMap(({ node, calls }) => {
    if (node === anchor) return [];
    const movesUp = anchor.isBefore(node);
    const isLiveAtAnchor = (user: Node): boolean =>
      user === anchor || (movesUp ? user.isBefore(anchor) : anchor.isBefore(user));
    return calls
      .flatMap(accessesOf)
      .filter(({ slice, reads, writes }) => !slice.buffer.storage && (movesUp ? writes : reads))
      .map(({ slice: { buffer } }) => buffer)
      .filter((buffer) => {
        const { readers, writers } = program.uses(buffer);
        return ![...readers, ...writers].some(isLiveAtAnchor);
      });
  });
  return [...new Set(held)].reduce((sum, { bytes }) => sum + bytes, 0);
}
