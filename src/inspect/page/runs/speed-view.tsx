/** How fast it is: samples a second, a step's time by its parts, its kernels and calls, and what the compiler made of it. */

import { useCallback, useMemo } from "preact/hooks";
import { epochsOf } from "./answers.js";
import type { ChartSeries } from "../charts/chart.js";
import { toCsv } from "../tables/csv.js";
import { download, Figure, fileName } from "../charts/figure.js";
import {
  formatBandwidth,
  formatBytes,
  formatCount,
  formatDuration,
  formatNumber,
  formatPercent,
} from "../tables/format.js";
import { type KernelRow, kernelRows, timeOfPhases } from "../plan/kernels.js";
import { lookOf, type SeriesLook } from "../charts/palette.js";
import { PassStepper } from "../plan/pass-stepper.js";
import { PlanPicker, usePlan } from "../plan/plan-picker.js";
import { SortTable, type TableColumn } from "../tables/sort-table.js";
import { StepChart } from "../charts/step-chart.js";
import type { StepTables } from "../tables/step-tables.js";
import { byEpoch, epochStepMs, hostByEpoch, stepTimes } from "./steps.js";
import type { CallReport, PlanRecord, RunDetail, StepTable } from "../wire.js";

export interface SpeedViewProps {
  readonly detail: RunDetail;
  readonly others: ReadonlyMap<string, RunDetail>;
  readonly tables: StepTables;
  readonly looks: ReadonlyMap<string, SeriesLook>;
  readonly planVersion: number;
}

const untimed =
  "No kernel times: train with --profile to have each call measured behind each fold. The table has what each kernel moves.";

export function SpeedView({ detail, others, tables, looks, planVersion }: SpeedViewProps) {
  const chosen = usePlan(detail, planVersion);
  const calls = chosen.plan?.calls ?? [];
  const parts = useMemo(() => timeOfPhases(calls), [calls]);
  const kernels = useMemo(() => kernelRows(calls), [calls]);
  const numbered = useMemo(() => calls.map((call, place) => ({ ...call, place })), [calls]);
  const paceLines = useCallback(
    (table: StepTable, { colour, dash }: SeriesLook, run: string, isAlone: boolean): ChartSeries[] => {
      const metrics = run === detail.name ? detail.metrics : (others.get(run)?.metrics ?? []);
      const figures = epochsOf(metrics).map(({ fold, epoch, samplesPerSecond: value }) => ({
        fold,
        epoch,
        value,
      }));
      const [each, mean] = [table.columns.samplesPerSecond, byEpoch(table, figures)];
      const name = isAlone ? "" : `${run}, `;
      const steps = { label: isAlone ? "step by step" : run, colour, dash, values: each };
      if (mean.every((value) => value === null)) return [steps];
      return [
        { ...steps, isFaint: true },
        { label: `${name}mean of the epoch`, colour, dash, values: mean },
      ];
    },
    [detail, others],
  );
  const timeLines = useCallback(
    (table: StepTable, _: SeriesLook, run: string): ChartSeries[] => {
      if (run !== detail.name) return [];
      const ended = byEpoch(table, epochStepMs(epochsOf(detail.metrics)));
      const isKnown = ended.some((value) => value !== null);
      const { host, whole } = isKnown ? { host: hostByEpoch(table), whole: ended } : stepTimes(table);
      return [
        { label: "a step", colour: lookOf(1).colour, values: whole, isFilled: true },
        { label: "of it host", colour: lookOf(0).colour, values: host, isFilled: true },
      ];
    },
    [detail.name, detail.metrics],
  );
  return (
    <div class="grid">
      <StepChart
        title="Samples per second"
        caption="Samples over time: faint from step to step, strong the mean of each epoch that has ended."
        hint="Steps are sent ahead of the device and waited for now and then, so a single one may look faster or slower than it is; the epoch's mean tells the truth. A slow fall over the whole run asks for a look at the memory."
        run={detail.name}
        tables={tables}
        looks={looks}
        linesOf={paceLines}
        format={formatNumber}
        startsAtZero
      />
      <StepChart
        title="Step time by parts"
        caption="A step's time in each epoch that has ended: below, the host's share; above it, what the device takes beyond that."
        hint="The host's time is what the call of a step takes until it comes back, the middle one of the epoch's. Where the lower part fills the whole, the device waits for the host; where it is thin, the device is the limit, which is how it should be. Until an epoch has ended, the times from one step to the next are shown: steps are sent ahead, so one that waits for those before it looks long."
        run={detail.name}
        tables={tables}
        looks={looks}
        linesOf={timeLines}
        format={formatMs}
        startsAtZero
        cutsTowers
        spansGaps
        lacking="No step times yet: there must be two steps of one epoch."
      />
      <div class="wide plan-line">
        <PlanPicker detail={detail} chosen={chosen} />
        {chosen.plan ? <p class="quiet">{modeOf(chosen.plan)}</p> : null}
      </div>
      <Figure
        title="Kernels"
        caption={
          parts
            ? `What each kernel takes of a step and moves in it. Together ${formatUs(parts.us)}, of which copies take ${formatUs(parts.copiesUs)}.`
            : chosen.plan
              ? untimed
              : "What each kernel takes of a step and moves in it."
        }
        hint="Time is what the kernel's calls add to the step, in microseconds. Bytes are what they read and write; over the time they make the bandwidth, which is near the card's own figure where a kernel can't be faster."
        isWide
        empty={chosen.missing}
        actions={[{ label: "CSV", title: "Save this table", run: () => saveKernels(detail.name, kernels) }]}
      >
        <SortTable
          label="Kernels"
          rows={kernels}
          columns={kernelColumns}
          sortBy={parts ? "µs" : "bytes"}
          pageSize={15}
        />
      </Figure>
      <Figure
        title="Calls"
        caption="Every call of a step, in the order in which they run."
        hint="Stream 0 is the main stream; calls of other streams run concurrently. The phase is forward, backward or update."
        isWide
        empty={chosen.missing}
        actions={[{ label: "CSV", title: "Save this table", run: () => saveCalls(detail.name, calls) }]}
      >
        <SortTable label="Calls" rows={numbered} columns={callColumns} pageSize={15} />
      </Figure>
      <Figure
        title="What the compiler did"
        caption="The calls before and after each pass: those that it took out, and those that it put in."
        hint="Trace is the step as it was written. Each pass leaves fewer or better calls; arrow keys go from pass to pass."
        isWide
        empty={chosen.missing}
      >
        {chosen.plan ? <PassStepper stages={chosen.plan.stages} /> : null}
      </Figure>
      <Figure
        title="explain()"
        caption="What step.explain() prints of this plan."
        isWide
        empty={chosen.missing}
        actions={[
          {
            label: "Text",
            title: "Save this text",
            run: () => download(fileName(detail.name, "explain.txt"), chosen.plan?.text ?? "", "text/plain"),
          },
        ]}
      >
        <pre class="text">{chosen.plan?.text}</pre>
      </Figure>
    </div>
  );
}

function modeOf({ mode, reason }: PlanRecord): string {
  if (mode === undefined) return "Has not run yet.";
  if (mode === "graph") return "Runs as one graph launch.";
  return `Runs call by call${reason ? `: ${reason}` : "."}`;
}

function formatUs(us: number): string {
  return formatMs(us / 1000);
}

function formatMs(value: number | null | undefined): string {
  return formatDuration(typeof value === "number" ? value / 1000 : value);
}

const kernelColumns: readonly TableColumn<KernelRow>[] = [
  { label: "kernel", value: ({ kernel }) => kernel, show: ({ kernel }) => <code>{kernel}</code> },
  { label: "kind", value: ({ kind }) => kind },
  {
    label: "µs",
    value: ({ us }) => us,
    show: ({ us }) => formatNumber(us),
    isNumber: true,
    title: "Microseconds of a step",
  },
  {
    label: "share",
    value: ({ share }) => share,
    show: ({ share }) => formatPercent(share),
    isNumber: true,
    title: "Of the measured time of all kernels",
  },
  {
    label: "times",
    value: ({ times }) => times,
    show: ({ times }) => formatCount(times),
    isNumber: true,
    title: "Calls in a step",
  },
  {
    label: "bytes",
    value: ({ bytes }) => bytes,
    show: ({ bytes }) => formatBytes(bytes),
    isNumber: true,
    title: "Read and written in a step",
  },
  {
    label: "GB/s",
    value: ({ bytes, us }) => (us ? bytes / us : undefined),
    show: ({ bytes, us }) => formatBandwidth(bytes, us),
    isNumber: true,
    title: "Bytes over time",
  },
];

type NumberedCall = CallReport & { readonly place: number };

const callColumns: readonly TableColumn<NumberedCall>[] = [
  { label: "#", value: ({ place }) => place, isNumber: true, title: "The place in the step" },
  { label: "op", value: ({ op }) => op },
  { label: "kernel", value: ({ kernel }) => kernel, show: ({ kernel }) => <code>{kernel}</code> },
  { label: "shape", value: ({ shape }) => shape },
  {
    label: "phase",
    value: ({ phase }) => phase,
    show: ({ phase }) => <span class={`phase ${phase}`}>{phase}</span>,
  },
  { label: "stream", value: ({ stream }) => stream, isNumber: true },
  {
    label: "µs",
    value: ({ us }) => us,
    show: ({ us }) => formatNumber(us),
    isNumber: true,
    title: "What it adds to the step",
  },
  {
    label: "read",
    value: ({ readBytes }) => readBytes,
    show: ({ readBytes }) => formatBytes(readBytes),
    isNumber: true,
  },
  {
    label: "written",
    value: ({ writtenBytes }) => writtenBytes,
    show: ({ writtenBytes }) => formatBytes(writtenBytes),
    isNumber: true,
  },
];

function saveKernels(run: string, rows: readonly KernelRow[]): void {
  const head = ["kernel", "kind", "us", "share", "times", "bytes"];
  download(
    fileName(run, "kernels.csv"),
    toCsv(
      head,
      rows.map(({ kernel, kind, us, share, times, bytes }) => [kernel, kind, us, share, times, bytes]),
    ),
  );
}

function saveCalls(run: string, calls: readonly CallReport[]): void {
  const head = ["op", "kernel", "kind", "shape", "phase", "stream", "us", "readBytes", "writtenBytes"];
  const rows = calls.map((call) => [
    call.op,
    call.kernel,
    call.kind,
    call.shape,
    call.phase,
    call.stream,
    call.us,
    call.readBytes,
    call.writtenBytes,
  ]);
  download(fileName(run, "calls.csv"), toCsv(head, rows));
}
