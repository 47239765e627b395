"""Requests and answers as the documents that Evenbeat grew from print them, word for word."""

CREATE_INTERVAL_JOB = """
POST /api/v1/jobs
Content-Type: application/json

{
  "source_id": "news-site",
  "source_name": "example.com",
  "url": "https://example.com",

  // NEW: Interval-based scheduling
  "interval_minutes": 30,
  "interval_type": "minutes",
  "schedule_enabled": true,

  // NEW: Retry configuration
  "max_retries": 3,
  "retry_backoff_seconds": 60,

  // NEW: Metadata
  "metadata": {
    "category": "news",
    "priority": "high"
  }
}
"""

CREATE_IMMEDIATE_JOB = """
POST /api/v1/jobs
Content-Type: application/json

{
  "source_id": "news-site",
  "source_name": "example.com",
  "url": "https://example.com",
  "schedule_enabled": false  // Run once, immediately
}
"""

PAUSE = """
POST /api/v1/jobs/:id/pause

Response: 200 OK
{
  "id": "...",
  "status": "paused",
  "is_paused": true,
  "paused_at": "2025-12-29T10:30:00Z",
  ...
}
"""

RESUME = """
POST /api/v1/jobs/:id/resume

Response: 200 OK
{
  "id": "...",
  "status": "scheduled",
  "is_paused": false,
  "next_run_at": "2025-12-29T11:00:00Z",  // Recalculated
  ...
}
"""

CANCEL = """
POST /api/v1/jobs/:id/cancel

Response: 200 OK
{
  "id": "...",
  "status": "cancelled",
  "cancelled_at": "2025-12-29T10:35:00Z",
  ...
}
"""

RETRY = """
POST /api/v1/jobs/:id/retry

Response: 200 OK
{
  "id": "...",
  "status": "pending",  // Reset to pending
  "current_retry_count": 0,  // Reset retry counter
  ...
}
"""

LIST_EXECUTIONS = """
GET /api/v1/jobs/:id/executions?limit=50&offset=0

Response: 200 OK
{
  "executions": [
    {
      "id": "exec-uuid",
      "job_id": "job-uuid",
      "execution_number": 42,
      "status": "completed",
      "started_at": "2025-12-29T10:00:00Z",
      "completed_at": "2025-12-29T10:02:30Z",
      "duration_ms": 150000,
      "items_crawled": 25,
      "items_indexed": 23,
      "retry_attempt": 0
    },
    ...
  ],
  "total": 100,
  "limit": 50,
  "offset": 0
}
"""

GET_EXECUTION = """
GET /api/v1/executions/:id

Response: 200 OK
{
  "id": "exec-uuid",
  "job_id": "job-uuid",
  "execution_number": 42,
  "status": "completed",
  "started_at": "2025-12-29T10:00:00Z",
  "completed_at": "2025-12-29T10:02:30Z",
  "duration_ms": 150000,
  "items_crawled": 25,
  "items_indexed": 23,
  "error_message": null,
  "cpu_time_ms": 120000,
  "memory_peak_mb": 256,
  "retry_attempt": 0,
  "metadata": {}
}
"""

JOB_STATS = """
GET /api/v1/jobs/:id/stats

Response: 200 OK
{
  "total_executions": 100,
  "successful_runs": 95,
  "failed_runs": 5,
  "average_duration_ms": 145000,
  "last_execution_at": "2025-12-29T10:00:00Z",
  "next_scheduled_at": "2025-12-29T10:30:00Z",
  "success_rate": 0.95
}
"""

SCHEDULER_METRICS = """
GET /api/v1/scheduler/metrics

Response: 200 OK
{
  "jobs": {
    "scheduled": 25,
    "running": 3,
    "completed": 1200,
    "failed": 50,
    "cancelled": 10
  },
  "executions": {
    "total": 1288,
    "average_duration_ms": 142000,
    "success_rate": 0.96
  },
  "last_check_at": "2025-12-29T10:30:00Z",
  "last_metrics_update": "2025-12-29T10:29:30Z",
  "stale_locks_cleared": 5
}
"""

ADJUST_RETRIES = """
   PUT /api/v1/jobs/:id
   {
     "max_retries": 5,
     "retry_backoff_seconds": 120
   }
"""

CURL_CREATE = """\
curl -X POST http://localhost:8060/api/v1/jobs \\
  -H "Content-Type: application/json" \\
  -d '{"source_name": "example.com", "url": "https://example.com", "interval_minutes": 30, "interval_type": "minutes", "schedule_enabled": true}'
"""  # noqa: E501

CURL_PAUSE = "curl -X POST http://localhost:8060/api/v1/jobs/{job-id}/pause\n"

CURL_METRICS = "curl http://localhost:8060/api/v1/scheduler/metrics\n"

ADMIN_STATS = """
GET /api/admin/jobs/stats
"""

ADMIN_LIST = """
GET /api/admin/jobs?status=<status>&limit=100&offset=0
"""

ADMIN_SET_STATUS = """
PUT /api/admin/jobs/{id}/status
Content-Type: application/json

{
  "status": "queued"
}
"""

ADMIN_SET_PRIORITY = """
PUT /api/admin/jobs/{id}/priority
Content-Type: application/json

{
  "priority": 50
}
"""

ADMIN_BOOST = """
POST /api/admin/jobs/{id}/boost
Content-Type: application/json

{
  "boost": 20
}
"""

ADMIN_RETRY = """
POST /api/admin/jobs/{id}/retry
"""

ADMIN_BULK_STATUS = """
PUT /api/admin/jobs/bulk/status
Content-Type: application/json

{
  "job_ids": [1, 2, 3, 4, 5],
  "status": "queued"
}
"""

ADMIN_BULK_RETRY = """
POST /api/admin/jobs/bulk/retry
Content-Type: application/json

{
  "job_ids": [1, 2, 3, 4, 5]
}
"""

ADMIN_LIST_SCHEDULED = """
GET /api/admin/scheduled-jobs?limit=100&offset=0
"""

ADMIN_CREATE_SCHEDULED = """
POST /api/admin/scheduled-jobs
Content-Type: application/json

{
  "name": "daily-askreddit",
  "description": "Daily crawl of AskReddit",
  "subreddit_id": 1,
  "cron_expression": "@daily",
  "enabled": true,
  "priority": 10
}
"""

ADMIN_GET_SCHEDULED = """
GET /api/admin/scheduled-jobs/{id}
"""

ADMIN_UPDATE_SCHEDULED = """
PUT /api/admin/scheduled-jobs/{id}
Content-Type: application/json

{
  "name": "hourly-worldnews",
  "description": "Hourly crawl of WorldNews",
  "cron_expression": "@hourly",
  "enabled": true,
  "priority": 20
}
"""

ADMIN_DELETE_SCHEDULED = """
DELETE /api/admin/scheduled-jobs/{id}
"""

ADMIN_TOGGLE = """
POST /api/admin/scheduled-jobs/{id}/toggle
Content-Type: application/json

{
  "enabled": false
}
"""

DISTRIBUTION = """
GET /api/v1/scheduler/distribution

Response: 200 OK
{
  "window_hours": 24,
  "slot_minutes": 15,
  "total_jobs": 42,
  "hourly_distribution": [
    {"hour": 0, "job_count": 4},
    {"hour": 1, "job_count": 3},
    ...
  ],
  "distribution_score": 0.85,  // 1.0 = perfectly even
  "peak_hour": 14,
  "peak_count": 8,
  "suggestion": "Distribution is acceptable"
}
"""

REBALANCE = """
POST /api/v1/scheduler/rebalance

Response: 200 OK
{
  "moved": [
    {"job_id": "abc123", "old_time": "2026-02-04T14:15:00Z", "new_time": "2026-02-04T10:30:00Z"},
    ...
  ],
  "skipped": [
    {"job_id": "def456", "reason": "protection_window"},
    ...
  ],
  "new_distribution_score": 0.92
}
"""

REBALANCE_PREVIEW = """
POST /api/v1/scheduler/rebalance/preview

Response: 200 OK
{
  "would_move": 12,
  "would_skip": 3,
  "current_score": 0.65,
  "projected_score": 0.91,
  "preview": [
    {"job_id": "abc123", "current_time": "...", "proposed_time": "..."},
    ...
  ]
}
"""
