/** A chart over steps, of one or several runs: loads detail when zoomed, exports PNG and CSV. */

import type { ComponentChildren } from "preact";
import { useMemo, useRef } from "preact/hooks";
import { Chart, type ChartHandle } from "../charts/chart.js";
import type { ChartMark, ChartSeries } from "../charts/chart-options.js";
import { download, Figure, fileName, pictureAction } from "../charts/figure.js";
import type { SeriesLook } from "../charts/palette.js";
import { toCsv } from "../tables/csv.js";
import { formatCount } from "../tables/format.js";
import type { Column, StepTable } from "../wire.js";
import type { StepTables } from "./step-tables.js";
import { mergeSteps } from "./steps.js";

export interface StepChartProps {
  readonly title: string;
  readonly caption: string;
  readonly hint: string;
  /** The page's run. */
  readonly run: string;
  readonly tables: StepTables;
  readonly looks: ReadonlyMap<string, SeriesLook>;
  /** The lines of a run, before they are mapped to a common axis. */
  readonly linesOf: (
    table: StepTable,
    look: SeriesLook,
    run: string,
    isAlone: boolean,
  ) => readonly ChartSeries[];
  readonly format: (value: number | null | undefined) => string;
  readonly marks?: readonly ChartMark[];
  readonly isLog?: boolean;
  readonly startsAtZero?: boolean;
  readonly clipsOutliers?: boolean;
  readonly controls?: ComponentChildren;
  readonly isWide?: boolean;
  /** Connects points across gaps, even for one run. */
  readonly spansGaps?: boolean;
  readonly height?: number;
  /** The message if the run has steps but not these figures. */
  readonly noData?: string;
  readonly onDraw?: () => void;
}

export function StepChart(props: StepChartProps) {
  const { title, caption, hint, run, tables, looks, linesOf, format, marks, controls } = props;
  const {
    isLog = false,
    startsAtZero = false,
    clipsOutliers = false,
    isWide = false,
    spansGaps = false,
    height,
    noData,
    onDraw,
  } = props;
  const { shown, range, steps: whole, setRange, rejections } = tables;
  const chart = useRef<ChartHandle>(null);

  const { x, series } = useMemo(() => {
    const runs = [...shown].filter(([, table]) => table.columns.step.length > 0);
    const { steps, align } = mergeSteps(runs.map(([, table]) => table.columns.step));
    const aligned = runs.flatMap(([name, table], index) => {
      const look = looks.get(name);
      const lines = look ? linesOf(table, look, name, runs.length === 1) : [];
      return lines.map(({ values, band, ...line }) => ({
        ...line,
        values: align(index, values),
        ...(band && { band: { low: align(index, band.low), high: align(index, band.high) } }),
      }));
    });
    return { x: steps, series: aligned };
  }, [shown, looks, linesOf]);

  const isEmpty = !series.some(({ values }) => hasValue(values));
  const empty = isEmpty ? whyEmpty(tables, run, noData) : undefined;
  const saveCsv = (): void => {
    const named = series.filter(({ isFaint }) => !isFaint);
    const columns = named.flatMap(({ label, values, band }): [string, Column][] => [
      [label, values],
      ...(band
        ? ([
            [`${label} min`, band.low],
            [`${label} max`, band.high],
          ] as [string, Column][])
        : []),
    ]);
    const rows = x.map((step, index) => [step, ...columns.map(([, values]) => values[index])]);
    download(fileName(run, `${title}.csv`), toCsv(["step", ...columns.map(([label]) => label)], rows));
  };
  return (
    <Figure
      title={title}
      caption={caption}
      hint={hint}
      isWide={isWide}
      empty={empty}
      actions={[
        pictureAction(chart, run, title),
        { label: "CSV", title: "Save the visible points", run: saveCsv },
      ]}
      controls={
        <>
          {controls}
          <ZoomState tables={tables} rejection={rejections.get(run)} />
        </>
      }
    >
      <Chart
        title={title}
        x={x}
        series={series}
        format={format}
        isLog={isLog}
        startsAtZero={startsAtZero}
        clipsOutliers={clipsOutliers}
        whole={whole}
        range={range}
        onRange={setRange}
        marks={marks ?? []}
        {...(height !== undefined && { height })}
        spansGaps={spansGaps || shown.size > 1}
        handle={chart}
        {...(onDraw && { onDraw })}
      />
    </Figure>
  );
}

function ZoomState({
  tables,
  rejection,
}: {
  readonly tables: StepTables;
  readonly rejection: string | undefined;
}) {
  const { range, setRange } = tables;
  if (rejection !== undefined) return <span class="quiet">{rejection}</span>;
  if (!range) return null;
  return (
    <span class="zoom">
      steps {formatCount(range.min)} to {formatCount(range.max)}
      <button type="button" class="small" onClick={() => setRange(undefined)}>
        Show all
      </button>
    </span>
  );
}

function hasValue(values: Column): boolean {
  return values.some((value) => typeof value === "number" && Number.isFinite(value));
}

function whyEmpty({ whole, rejections }: StepTables, run: string, noData: string | undefined): string {
  const rejection = rejections.get(run);
  if (rejection !== undefined) return `The steps can't be shown: ${rejection}`;
  const table = whole.get(run);
  if (table === undefined) return "Loading steps…";
  if (table.rows === 0) return "No steps yet.";
  return noData ?? "The steps of this run do not have this figure.";
}
