// What a dashboard of ours may be, in Grafana's own types. tests/unit/test_dashboards.py writes each file of
// src/ncclscope/dashboards as a literal of this type: an unknown field, a missing one or a wrong value does not compile.
import type { DataQuery, Dashboard as GrafanaDashboard, Panel, VariableModel } from "@grafana/schema";
import type { FieldConfig as HeatmapFields, Options as HeatmapOptions } from "@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen";
import type { Options as StatOptions } from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type { FieldConfig as HistoryFields, Options as HistoryOptions } from "@grafana/schema/dist/esm/raw/composable/statushistory/panelcfg/x/StatusHistoryPanelCfg_types.gen";
import type { FieldConfig as TableFields, Options as TableOptions } from "@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen";
import type { FieldConfig as LineFields, Options as LineOptions } from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

/** The same in JSON, where an enumeration is the text of one of its values. */
type Json<T> = T extends string ? `${T}` : T extends (infer One)[] ? Json<One>[] : T extends object ? { [Name in keyof T]: Json<T[Name]> } : T;

/** Prometheus' part of a query is not in @grafana/schema: these are the fields that its editor saves. */
interface PrometheusQuery extends Pick<DataQuery, "refId"> {
  datasource: { type: "prometheus"; uid: string };
  expr: string;
  legendFormat: string;
  format: "time_series" | "table" | "heatmap";
  instant: boolean;
  range: boolean;
}

type Defaults = NonNullable<Panel["fieldConfig"]>["defaults"];

interface PanelOf<Kind extends string, Options, Fields> extends Omit<Panel, "type" | "options" | "targets" | "fieldConfig"> {
  type: Kind;
  title: string;
  gridPos: NonNullable<Panel["gridPos"]>;
  options: Options;
  targets: PrometheusQuery[];
  fieldConfig: { defaults: Omit<Defaults, "custom"> & { custom?: Partial<Fields> }; overrides: [] };
}

type AnyPanel =
  | PanelOf<"heatmap", HeatmapOptions, HeatmapFields>
  | PanelOf<"stat", StatOptions, Record<string, never>>
  | PanelOf<"status-history", HistoryOptions, HistoryFields>
  | PanelOf<"table", TableOptions, TableFields>
  | PanelOf<"timeseries", LineOptions, LineFields>;

type Variable = Omit<VariableModel, "query"> & { query: string | { query: string; refId: string } };

export type Dashboard = Json<
  Omit<GrafanaDashboard, "panels" | "templating" | "uid" | "title"> & {
    uid: string;
    title: string;
    panels: AnyPanel[];
    templating: { list: Variable[] };
  }
>;
