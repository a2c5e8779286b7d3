-- Differences between the policies in force and the shadow policies, the newest first. Events of other types cost
-- nothing here.
CREATE INDEX events_differing ON events (position) WHERE event_type = 'policy_differs';
