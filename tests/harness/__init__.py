"""What tests start, wait for and measure with: brokers, roles to be killed, a browser. No test is in here."""
