# pgtasks as a program: workers, the scheduler, migrations and the command line.
#
#   docker build -t pgtasks .
#   docker run --rm -e PGTASKS_DSN=postgresql://… pgtasks status
#
# Your own image needs three lines: FROM this one, COPY your code, and a worker as its command.
FROM python:3.12-slim

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
COPY pyproject.toml README.md LICENSE /src/
COPY pgtasks /src/pgtasks
COPY migrations /src/migrations
COPY examples /app/examples
# A checkout may be readable by its owner alone, and COPY keeps that.
RUN chmod -R a+rX /src /app \
    && pip install --no-cache-dir --root-user-action=ignore /src \
    && useradd --uid 10001 --create-home pgtasks

# A number, because Kubernetes' runAsNonRoot cannot tell whose name a name is.
USER 10001
WORKDIR /app
ENV PYTHONPATH=/app
# The worker itself is process 1, receives the signal that stops it, and reaps what its children leave.
ENTRYPOINT ["pgtasks"]
CMD ["--help"]
STOPSIGNAL SIGTERM
