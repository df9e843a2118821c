/** A plan's memory: its picture, who is alive at the peak, and all tensors as a table. */

import { useMemo, useState } from "preact/hooks";
import { download, Figure, fileName } from "../charts/figure.js";
import { phaseColours } from "../charts/palette.js";
import { toCsv } from "../tables/csv.js";
import { formatBytes, formatCount, formatPercent } from "../tables/format.js";
import { SortTable, type TableColumn } from "../tables/sort-table.js";
import type { PlannedTensor, PlanRecord } from "../wire.js";
import { PlanCanvas } from "./plan-canvas.js";
import { aliveAtPeak, matching, phaseOf, pictureOf, sumBytes } from "./plan-picture.js";

export interface PlanFiguresProps {
  readonly run: string;
  readonly plan: PlanRecord;
  readonly search: string;
}

export function PlanFigures({ run, plan, search }: PlanFiguresProps) {
  const { memory, calls } = plan;
  const [pinned, setPinned] = useState(-1);
  const picture = useMemo(() => pictureOf(plan), [plan]);
  const alive = useMemo(() => aliveAtPeak(memory), [memory]);
  const shown = useMemo(() => {
    const found = matching(memory.tensors, search);
    return found ? memory.tensors.filter((_, index) => found.has(index)) : memory.tensors;
  }, [memory, search]);
  const columns = useMemo(() => tensorColumns(plan), [plan]);
  const choose = (tensor: PlannedTensor): void => setPinned(memory.tensors.indexOf(tensor));
  const isTuned = (tensor: PlannedTensor): boolean => pinned >= 0 && memory.tensors[pinned] === tensor;
  const over = memory.lowerBound > 0 ? memory.peak / memory.lowerBound - 1 : 0;
  const hasNone = memory.tensors.length === 0 ? "This step needs no memory of its own." : undefined;
  return (
    <>
      <Figure
        title="Step memory"
        caption={`${formatCount(memory.tensors.length)} tensors in ${formatBytes(memory.peak)}; the most alive at once is ${formatBytes(memory.lowerBound)}, ${over < 0.0005 ? "and no plan can need less" : `so the plan is ${formatPercent(over)} above the least that any needs`}. Address up, calls along.`}
        hint="A rectangle is a tensor: as high as its bytes, from the call that makes it to the last that reads it. Two that lie side by side share an address, one after the other. Striped ones are saved for backward. Wheel zooms, with Shift only along; drag moves; double-click shows everything."
        isWide
        empty={hasNone}
        controls={<Legend search={search} found={shown.length} />}
        actions={[{ label: "CSV", title: "Save all tensors", run: () => saveTensors(run, plan) }]}
      >
        <PlanCanvas plan={plan} picture={picture} search={search} pinned={pinned} onPin={setPinned} />
      </Figure>
      <Figure
        title="Alive at the peak"
        caption={
          memory.peakAt < 0
            ? "No step memory."
            : `At call ${memory.peakAt} (${calls[memory.peakAt]?.op ?? "unknown"}) these are alive, ${formatBytes(sumBytes(alive))} together: the least that any plan needs.`
        }
        hint="To need less memory, one of these must die earlier, become smaller or be computed again. Largest first."
        isWide
        empty={hasNone}
        actions={[
          {
            label: "CSV",
            title: "Save this list",
            run: () => download(fileName(run, "peak.csv"), tensorCsv(alive, plan)),
          },
        ]}
      >
        <SortTable
          label="Alive at the peak"
          rows={alive}
          columns={columns}
          pageSize={10}
          isTuned={isTuned}
          onChoose={choose}
          footer={
            <tr>
              <th scope="row" colSpan={2}>
                together
              </th>
              <td class="number" data-sum={sumBytes(alive)}>
                {formatBytes(sumBytes(alive))}
              </td>
              <td colSpan={5} />
            </tr>
          }
        />
      </Figure>
      <Figure
        title="All tensors of the step"
        caption="The picture as a table. A row that is chosen is outlined in the picture."
        isWide
        empty={
          hasNone ?? (shown.length === 0 ? `No tensor's name or type holds “${search.trim()}”.` : undefined)
        }
        actions={[{ label: "CSV", title: "Save all tensors", run: () => saveTensors(run, plan) }]}
      >
        <SortTable
          label="Tensors"
          rows={shown}
          columns={columns}
          pageSize={15}
          isTuned={isTuned}
          onChoose={choose}
        />
      </Figure>
      <Figure
        title="Persistent memory"
        caption="What the step touches and does not own: it stays from step to step, outside of the block above."
        isWide
        empty={memory.persistent.length === 0 ? "This step touches none." : undefined}
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

function Legend({ search, found }: { readonly search: string; readonly found: number }) {
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
      {search.trim() === "" ? null : <span class="quiet">{formatCount(found)} found</span>}
    </>
  );
}

function tensorColumns({ calls }: PlanRecord): TableColumn<PlannedTensor>[] {
  return [
    { label: "label", value: ({ label }) => label, title: "The op that made it" },
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
    { label: "birth", value: ({ birth }) => birth, isNumber: true, title: "The call that makes it" },
    { label: "death", value: ({ death }) => death, isNumber: true, title: "The last call that needs it" },
    {
      label: "phase",
      value: (tensor) => phaseOf(tensor, calls),
      show: (tensor) => <span class={`phase ${phaseOf(tensor, calls)}`}>{phaseOf(tensor, calls)}</span>,
    },
    { label: "saved", value: ({ isSaved }) => (isSaved ? "saved" : ""), title: "Kept for the way back" },
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
