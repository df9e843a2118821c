/** Batching rules of ops that read and write at indices. */

import { expand, gather, indexSelect, reshape } from "../../../ops/index.js";
import { type BatchingRule, shifted } from "../batch-call.js";

/** A list of indices of each member is gathered. */
export const indexSelectRule: BatchingRule = (call) => {
  const { device, operands } = call;
  const [x, index] = operands;
  const { axis: given } = call.attributes as { readonly axis: number };
  const rank = call.rankOf(0);
  if (!call.isBatched(1))
    return call.run([call.whole(0), call.raw(1)], { ...call.attributes, axis: shifted(given, rank) });
  if (typeof x !== "object" || typeof index !== "object") return undefined;
  const axis = shifted(given, rank) - 1;
  const alone = x.shape.map((_, other) => (other === axis ? -1 : 1));
  const column = device.apply(reshape, [index], { shape: alone });
  const shape = x.shape.with(axis, index.shape[0] ?? 0);
  const everywhere = device.apply(expand, [column], { shape });
  return [call.unwrap(device.apply(gather, [x, everywhere], { axis }))];
};

/** One table: the members' indices are further indices. Otherwise the rows are selected. */
export const embeddingRule: BatchingRule = (call) => {
  if (!call.isBatched(0)) return call.run([call.raw(0), call.raw(1)]);
  const { device, operands } = call;
  const [table, index] = operands;
  const hasPadding = (call.attributes as { readonly paddingIdx?: number }).paddingIdx !== undefined;
  if (hasPadding || typeof table !== "object" || typeof index !== "object") return undefined;
  const flat = device.apply(reshape, [index], { shape: [index.numel] });
  const rows = device.apply(indexSelect, [table, flat], { axis: 0 });
  return [call.unwrap(device.apply(reshape, [rows], { shape: [...index.shape, table.shape[1] ?? 0] }))];
};
