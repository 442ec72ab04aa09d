"""What the connector counts, and how it reaches Prometheus.

Three kinds of process exist, and each number has one home:

========================================  =======================================================================
process                                   exports
========================================  =======================================================================
Python workers of an executor             nothing themselves: they write `catalog.EXECUTOR_METRICS` into shared
                                          files (`slot`), since they come and go
exporter, one per executor (`exporter`)   ``/metrics`` of that executor: the sum over all its workers, dead or alive
driver (`connector.spark.driver_metrics`) ``/metrics`` of the queries: `catalog.DRIVER_METRICS`, from Spark's listener
========================================  =======================================================================

A worker asks `endpoint.executor_recorder` for its `recorder.Recorder`; nothing else here is needed on the read path.
"""
