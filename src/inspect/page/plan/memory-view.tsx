/** Memory: the budget by holder, the step's plan as a picture, and the arena over time. */

import { useMemo, useRef, useState } from "preact/hooks";
import { BudgetBar } from "../charts/bars.js";
import { Chart, type ChartHandle } from "../charts/chart.js";
import type { ChartSeries } from "../charts/chart-options.js";
import { download, Figure, fileName, pictureAction } from "../charts/figure.js";
import { lookOf } from "../charts/palette.js";
import { toCsv } from "../tables/csv.js";
import { formatBytes, formatCount, formatTime } from "../tables/format.js";
import type { MemorySample, RunDetail } from "../wire.js";
import { PlanFigures } from "./plan-figures.js";
import { PlanPicker, usePlan } from "./plan-picker.js";

export interface MemoryViewProps {
  readonly detail: RunDetail;
  readonly samples: readonly MemorySample[];
  readonly planVersion: number;
}

export function MemoryView({ detail, samples, planVersion }: MemoryViewProps) {
  const chosen = usePlan(detail, planVersion);
  const [search, setSearch] = useState("");
  const last = samples.at(-1);
  const unsampled =
    "No memory samples yet: they are written to memory.jsonl for every plan, after every epoch and every few seconds.";
  return (
    <div class="grid">
      <Figure
        title="Budget by holder"
        caption={
          last
            ? `${formatBytes(last.used)} of ${formatBytes(last.limit)} used at step ${formatCount(last.step)}, ${formatTime(last.time)} (thin bar). The thick bar shows the holders.`
            : "The holders of this run's memory budget."
        }
        hint="Every byte is charged to the budget under a label before it is allocated. Shares are of the used memory. The empty part of the thin bar is still available."
        isWide
        empty={last ? undefined : unsampled}
        actions={[
          {
            label: "CSV",
            title: "Save the holders",
            run: () =>
              download(
                fileName(detail.name, "budget.csv"),
                toCsv(
                  ["label", "bytes"],
                  (last?.holders ?? []).map(({ label, bytes }) => [label, bytes]),
                ),
              ),
          },
        ]}
      >
        {last ? <BudgetBar {...last} /> : null}
      </Figure>
      <div class="wide plan-line">
        <PlanPicker detail={detail} chosen={chosen} />
        {detail.plans.length > 0 ? (
          <label class="search">
            Search tensors
            <input
              type="search"
              value={search}
              placeholder="name, type or “saved”"
              data-search
              onInput={(event) => setSearch(event.currentTarget.value)}
            />
          </label>
        ) : null}
      </div>
      {chosen.plan ? (
        <PlanFigures
          key={`${detail.name} ${chosen.line?.index}`}
          run={detail.name}
          plan={chosen.plan}
          search={search}
        />
      ) : (
        <Figure
          title="Step memory"
          caption="Each tensor of a step is a rectangle: address on the vertical axis, calls on the horizontal axis."
          isWide
          empty={chosen.missing}
        />
      )}
      <Arena detail={detail} samples={samples} empty={last ? undefined : unsampled} />
    </div>
  );
}

interface ArenaProps extends Omit<MemoryViewProps, "planVersion"> {
  readonly empty: string | undefined;
}

function Arena({ detail, samples, empty }: ArenaProps) {
  const { x, sizes, counts } = useMemo(() => arenaLines(samples), [samples]);
  return (
    <>
      <SampleChart
        run={detail.name}
        title="Arena by step"
        caption="Bytes of the arena that holds step memory, at each sample."
        hint="Committed: allocated from the device. High water: the maximum ever in use. Live: in use now. Pinned: kept after a step. Live memory that grows from step to step is a leak."
        x={x}
        series={sizes}
        format={formatBytes}
        empty={empty}
      />
      <SampleChart
        run={detail.name}
        title="Pins and resets"
        caption="The number of pinned tensors and of arena resets."
        hint="The arena is reset after each step, so resets grow with the steps. Pins that only grow are tensors that are never released."
        x={x}
        series={counts}
        format={formatCount}
        empty={empty}
      />
    </>
  );
}

interface SampleChartProps {
  readonly run: string;
  readonly title: string;
  readonly caption: string;
  readonly hint: string;
  readonly x: readonly number[];
  readonly series: readonly ChartSeries[];
  readonly format: (value: number | null | undefined) => string;
  readonly empty: string | undefined;
}

function SampleChart({ run, title, caption, hint, x, series, format, empty }: SampleChartProps) {
  const chart = useRef<ChartHandle>(null);
  const saveCsv = (): void => {
    const rows = x.map((step, index) => [step, ...series.map(({ values }) => values[index])]);
    download(fileName(run, `${title}.csv`), toCsv(["step", ...series.map(({ label }) => label)], rows));
  };
  return (
    <Figure
      title={title}
      caption={caption}
      hint={hint}
      empty={empty}
      actions={[
        pictureAction(chart, run, title),
        { label: "CSV", title: "Save these figures", run: saveCsv },
      ]}
    >
      <Chart
        title={title}
        x={x}
        series={series}
        format={format}
        isBytes={format === formatBytes}
        startsAtZero
        handle={chart}
      />
    </Figure>
  );
}

/** Keeps the last sample of each step. */
function arenaLines(samples: readonly MemorySample[]): {
  x: number[];
  sizes: ChartSeries[];
  counts: ChartSeries[];
} {
  const byStep = [...new Map(samples.map((sample) => [sample.step, sample])).values()].sort(
    (a, b) => a.step - b.step,
  );
  const line = (label: string, index: number, pick: (sample: MemorySample) => number): ChartSeries => ({
    label,
    ...lookOf(index),
    values: byStep.map(pick),
  });
  return {
    x: byStep.map(({ step }) => step),
    sizes: [
      line("committed", 0, ({ arena }) => arena.committed),
      line("high water", 1, ({ arena }) => arena.highWater),
      line("live", 2, ({ arena }) => arena.live),
      line("pinned", 3, ({ arena }) => arena.pinnedBytes),
    ],
    counts: [line("pins", 3, ({ arena }) => arena.pins), line("resets", 0, ({ arena }) => arena.resets)],
  };
}
