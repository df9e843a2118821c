/** The row maps of tables, and the owners of the entries that select their rows; see kernels/compact-rows. */

import type { IndexedTable } from "../../../kernels/index.js";
import { accessOf } from "../access.js";
import type { BufferSlice } from "../buffer.js";
import type { Kind } from "./kind.js";

export interface RowMapCall {
  readonly kind: "row-map";
  readonly tables: readonly IndexedTable<BufferSlice>[];
  readonly map: BufferSlice;
  readonly owners: BufferSlice;
}

export const rowMap: Kind<RowMapCall> = {
  accesses: ({ tables, map, owners }) => [
    ...tables.map(({ index }) => accessOf(index, "in")),
    accessOf(map, "out"),
    accessOf(owners, "out"),
  ],
  mapSlices: ({ tables, map, owners }, to) => ({
    kind: "row-map",
    tables: tables.map(({ index, ...table }) => ({ ...table, index: to(index) })),
    map: to(map),
    owners: to(owners),
  }),
  key({ tables, map, owners }, { read, written, literal }) {
    const texts = tables.map(({ index, ...table }) => `${read(index)} ${literal(table)}`);
    return [...texts, written(map), written(owners)].join(" ");
  },
  name: () => "row map",
  shape: ({ tables }) => tables.map(({ rows, count }) => `${rows} ← ${count}`).join(", "),
  emit({ tables, map, owners }, { backend, op, resolve }) {
    const resolved = tables.map(({ index, ...table }) => ({ ...table, index: resolve(index) }));
    return backend.lowerRowMap({ tables: resolved, map: resolve(map), owners: resolve(owners) }, op);
  },
};
