"""The laptop cluster: three Kafka brokers in three racks and three Spark workers, as processes of this machine.

It serves the tests and ``make run``. Everything it starts ends with the process that started it.
"""
