"""The feed: click logs -> impressions -> events in the stream, with an account of everything dropped."""
