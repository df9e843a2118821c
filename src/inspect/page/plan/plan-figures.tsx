/** A plan's memory: the picture, the tensors live at the peak, and a table of all tensors. */

import { useMemo, useState } from "preact/hooks";
import { download, Figure, fileName } from "../charts/figure.js";
import { phaseColours } from "../charts/palette.js";
import { toCsv } from "../tables/csv.js";
import { formatBytes, formatCount, formatPercent } from "../tables/format.js";
import { SortTable, type TableColumn } from "../tables/sort-table.js";
import type { PlannedTensor, PlanRecord } from "../wire.js";
import { PlanCanvas } from "./plan-canvas.js";
import { liveAtPeak, matchingTensors, phaseOf, pictureOf, sumBytes } from "./plan-picture.js";

export interface PlanFiguresProps {
  readonly run: string;
  readonly plan: PlanRecord;
  readonly search: string;
}

export function PlanFigures({ run, plan, search }: PlanFiguresProps) {
  const { memory, calls } = plan;
  const [pinned, setPinned] = useState(-1);
  const picture = useMemo(() => pictureOf(plan), [plan]);
  const live = useMemo(() => liveAtPeak(memory), [memory]);
  const shown = useMemo(() => {
    const matches = matchingTensors(memory.tensors, search);
    return matches ? memory.tensors.filter((_, index) => matches.has(index)) : memory.tensors;
  }, [memory, search]);
  const columns = useMemo(() => tensorColumns(plan), [plan]);
  const choose = (tensor: PlannedTensor): void => setPinned(memory.tensors.indexOf(tensor));
  const isSelected = (tensor: PlannedTensor): boolean => pinned >= 0 && memory.tensors[pinned] === tensor;
  const overhead = memory.lowerBound > 0 ? memory.peak / memory.lowerBound - 1 : 0;
  const hasNone = memory.tensors.length === 0 ? "This step needs no step memory." : undefined;
  return (
    <>
      <Figure
        title="Step memory"
        caption={`${formatCount(memory.tensors.length)} tensors in ${formatBytes(memory.peak)}. The lower bound is ${formatBytes(memory.lowerBound)}; the plan ${overhead < 0.0005 ? "reaches it" : `is ${formatPercent(overhead)} above it`}. Vertical: address; horizontal: calls.`}
        hint="A rectangle is a tensor. Its height is its size; it extends from the call that creates it to the last call that reads it. Rectangles at the same height use the same addresses one after the other. Striped tensors are saved for backward. The wheel zooms, with Shift only horizontally; dragging pans; a double-click shows everything."
        isWide
        empty={hasNone}
        controls={<Legend search={search} matches={shown.length} />}
        actions={[{ label: "CSV", title: "Save all tensors", run: () => saveTensors(run, plan) }]}
      >
        <PlanCanvas plan={plan} picture={picture} search={search} pinned={pinned} onPin={setPinned} />
      </Figure>
      <Figure
        title="Live at the peak"
        caption={
          memory.peakAt < 0
            ? "No step memory."
            : `At call ${memory.peakAt} (${calls[memory.peakAt]?.op ?? "unknown"}) these tensors are live, ${formatBytes(sumBytes(live))} in total: the lower bound of any plan.`
        }
        hint="To save memory, one of these must be released earlier, become smaller or be recomputed. Largest first."
        isWide
        empty={hasNone}
        actions={[
          {
            label: "CSV",
            title: "Save this list",
            run: () => download(fileName(run, "peak.csv"), tensorCsv(live, plan)),
          },
        ]}
      >
        <SortTable
          label="Live at the peak"
          rows={live}
          columns={columns}
          pageSize={10}
          isSelected={isSelected}
          onChoose={choose}
          footer={
            <tr>
              <th scope="row" colSpan={2}>
                total
              </th>
              <td class="number" data-sum={sumBytes(live)}>
                {formatBytes(sumBytes(live))}
              </td>
              <td colSpan={5} />
            </tr>
          }
        />
      </Figure>
      <Figure
        title="All tensors of the step"
        caption="The picture as a table. The selected row is outlined in the picture."
        isWide
        empty={
          hasNone ??
          (shown.length === 0 ? `No tensor's name or type contains “${search.trim()}”.` : undefined)
        }
        actions={[{ label: "CSV", title: "Save all tensors", run: () => saveTensors(run, plan) }]}
      >
        <SortTable
          label="Tensors"
          rows={shown}
          columns={columns}
          pageSize={15}
          isSelected={isSelected}
          onChoose={choose}
        />
      </Figure>
      <Figure
        title="Persistent memory"
        caption="Memory that the step uses but that outlives it, outside the block above."
        isWide
        empty={memory.persistent.length === 0 ? "This step uses none." : undefined}
      >
        <SortTable
          label="Persistent memory"
          rows={memory.persistent}
          columns={persistentColumns}
          pageSize={10}
        />
      </Figure>
    </>
  );
}

function Legend({ search, matches }: { readonly search: string; readonly matches: number }) {
  return (
    <>
      <ul class="keys">
        {Object.entries(phaseColours).map(([phase, colour]) => (
          <li key={phase}>
            <span class="key" style={{ backgroundColor: colour }} />
            {phase}
          </li>
        ))}
        <li>
          <span class="key striped" style={{ backgroundColor: phaseColours.forward }} />
          saved for backward
        </li>
      </ul>
      {search.trim() === "" ? null : <span class="quiet">{formatCount(matches)} matches</span>}
    </>
  );
}

function tensorColumns({ calls }: PlanRecord): TableColumn<PlannedTensor>[] {
  return [
    { label: "label", value: ({ label }) => label, title: "The op that creates it" },
    {
      label: "type",
      value: ({ type }) => type ?? "scratch",
      show: ({ type }) => <code>{type ?? "scratch"}</code>,
    },
    { label: "bytes", value: ({ bytes }) => bytes, show: ({ bytes }) => formatBytes(bytes), isNumber: true },
    {
      label: "address",
      value: ({ offset }) => offset,
      show: ({ offset }) => formatCount(offset),
      isNumber: true,
      title: "In the step's block",
    },
    { label: "birth", value: ({ birth }) => birth, isNumber: true, title: "The call that creates it" },
    { label: "death", value: ({ death }) => death, isNumber: true, title: "The last call that uses it" },
    {
      label: "phase",
      value: (tensor) => phaseOf(tensor, calls),
      show: (tensor) => <span class={`phase ${phaseOf(tensor, calls)}`}>{phaseOf(tensor, calls)}</span>,
    },
    { label: "saved", value: ({ isSaved }) => (isSaved ? "saved" : ""), title: "Saved for backward" },
  ];
}

const persistentColumns: readonly TableColumn<{ readonly label: string; readonly bytes: number }>[] = [
  { label: "label", value: ({ label }) => label },
  { label: "bytes", value: ({ bytes }) => bytes, show: ({ bytes }) => formatBytes(bytes), isNumber: true },
];

function tensorCsv(tensors: readonly PlannedTensor[], { calls }: PlanRecord): string {
  return toCsv(
    ["label", "type", "bytes", "offset", "birth", "death", "phase", "isSaved"],
    tensors.map((tensor) => [
      tensor.label,
      tensor.type,
      tensor.bytes,
      tensor.offset,
      tensor.birth,
      tensor.death,
      phaseOf(tensor, calls),
      tensor.isSaved,
    ]),
  );
}

function saveTensors(run: string, plan: PlanRecord): void {
  download(fileName(run, "tensors.csv"), tensorCsv(plan.memory.tensors, plan));
}
