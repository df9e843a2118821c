/** The list of runs: the selected run, and the runs to compare with. */

import { useState } from "preact/hooks";
import type { SeriesLook } from "../charts/palette.js";
import { formatRoute, type Route } from "../route.js";
import { formatCount, formatPercent } from "../tables/format.js";
import type { RunLine } from "../wire.js";

export interface RunListProps {
  readonly runs: readonly RunLine[];
  readonly route: Route;
  readonly looks: ReadonlyMap<string, SeriesLook>;
  readonly onCompare: (name: string, isWanted: boolean) => void;
}

export function RunList({ runs, route, looks, onCompare }: RunListProps) {
  const [search, setSearch] = useState("");
  const query = search.trim().toLowerCase();
  const shown = runs.filter(({ name }) => name.toLowerCase().includes(query));
  return (
    <>
      {runs.length > 5 ? (
        <input
          type="search"
          class="find-runs"
          placeholder="Search runs"
          aria-label="Search runs"
          value={search}
          data-search
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
      ) : null}
      <ul class="runs">
        {shown.map((run) => (
          <RunItem key={run.name} run={run} route={route} look={looks.get(run.name)} onCompare={onCompare} />
        ))}
      </ul>
      {shown.length === 0 ? <p class="quiet">No run’s name contains “{search.trim()}”.</p> : null}
    </>
  );
}

interface RunItemProps extends Pick<RunListProps, "route" | "onCompare"> {
  readonly run: RunLine;
  readonly look: SeriesLook | undefined;
}

function RunItem({ run, route, look, onCompare }: RunItemProps) {
  const { name, state, step, of, isLive, note } = run;
  const isSelected = name === route.run;
  const others = route.others.filter((other) => other !== name);
  const share = typeof step === "number" && of && step < of ? formatPercent(step / of, 0) : undefined;
  return (
    <li class={isSelected ? "chosen" : ""}>
      <input
        type="checkbox"
        checked={isSelected || route.others.includes(name)}
        disabled={isSelected}
        title={isSelected ? "This run is selected" : "Compare with this run"}
        aria-label={`Compare ${name}`}
        style={{ accentColor: look?.colour ?? "auto" }}
        onChange={(event) => onCompare(name, event.currentTarget.checked)}
      />
      <a href={formatRoute({ ...route, run: name, others })} aria-current={isSelected ? "page" : undefined}>
        <span class="name">{name}</span>
        <span class="quiet">
          <span class={`dot ${isLive ? "live" : state}`} /> {isLive ? "live" : state}
          {typeof step === "number" ? ` · step ${formatCount(step)}` : ""}
          {share === undefined ? "" : ` · ${share}`}
        </span>
        {note ? <span class="note">{note}</span> : null}
      </a>
    </li>
  );
}
