/** Columns of rows: ids, labels, and if a row has several texts, their positions and segments. */

import { TensorDataset } from "../../data/index.js";
import type { RowPlan } from "./plan-rows.js";
import type { TokenStore } from "./token-store.js";

/** Numbers of rows: [rows, length]. */
interface TokenColumn {
  readonly values: Int32Array;
  readonly shape: readonly number[];
}

/** Ids and labels; positions and segments only if some row has several texts. All are i32 [rows, length]. */
export type TextColumns = readonly [
  ids: TokenColumn,
  labels: TokenColumn,
  ...positionsAndSegments: TokenColumn[],
];

/** The label of tokens that do not count. */
const ignoredLabel = -100;

/** Writes the texts of a store into rows. `texts` selects them; the plan has a row for each. */
export function makeRows(
  store: TokenStore,
  texts: Uint32Array,
  { rows, rowOf }: RowPlan,
  { length, padId }: { readonly length: number; readonly padId: number },
): TensorDataset<TextColumns> {
  const column = (fill: number): TokenColumn => ({
    values: new Int32Array(rows * length).fill(fill),
    shape: [rows, length],
  });
  const [ids, labels] = [column(padId), column(ignoredLabel)];
  const isPacked = rows < texts.length;
  const [positions, segments] = isPacked ? [column(0), column(0)] : [];
  const used = new Uint32Array(rows);
  const counts = new Uint32Array(rows);
  for (const [index, text] of texts.entries()) {
    const row = rowOf[index] ?? 0;
    const tokens = store.at(text);
    const start = row * length + (used[row] ?? 0);
    used[row] = (used[row] ?? 0) + tokens.length;
    const segment = (counts[row] ?? 0) + 1;
    counts[row] = segment;
    for (let offset = 0; offset < tokens.length; offset++) {
      const token = tokens[offset] ?? 0;
      ids.values[start + offset] = token < 0 ? ~token : token;
      // The first token of a text has nothing before it that could predict it.
      if (token >= 0 && offset > 0) labels.values[start + offset] = token;
      if (positions) positions.values[start + offset] = offset;
    }
    segments?.values.fill(segment, start, start + tokens.length);
  }
  const columns: TextColumns = positions && segments ? [ids, labels, positions, segments] : [ids, labels];
  return new TensorDataset<TextColumns>(...columns);
}
