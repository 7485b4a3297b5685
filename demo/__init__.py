"""`make demo`: an exactly-once pipeline that is killed while it runs."""
